"""The stream of events: one sampler for all, twenty clients at most, and an end."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")

import orjson

from rmqclient import Message, Producer
from rmqclient.dashboard.desk.desk import Desk
from rmqclient.dashboard.desk.live import CLIENTS_AT_MOST, TooManyClients
from tests.support.stores import SMALL
from tests.support.threads import no_thread_left

LONG_S = 30.0


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    with Producer(tmp_path / "store", config=SMALL) as producer:
        producer.send(Message("orders", b"one"))
    return Desk(tmp_path / "store", allow_actions=False)


def test_all_clients_share_one_sampler_and_get_the_same_samples(desk: Desk) -> None:
    async def scenario() -> list[list[float]]:
        desk.live.begin()
        desk.live.begin()
        streams = [desk.live.stream() for _ in range(3)]
        heard: list[list[float]] = [[] for _ in streams]
        for number, stream in enumerate(streams):
            async for event in stream:
                if event.startswith(b"data: "):
                    heard[number].append(orjson.loads(event[6:])["t"])
                if len(heard[number]) == 2:
                    break
            await stream.aclose()  # type: ignore[attr-defined]
        return heard

    before = set(threading.enumerate())
    with no_thread_left("rmq-dashboard"), closing(desk):
        heard = asyncio.run(asyncio.wait_for(scenario(), LONG_S))
        assert [thread.name for thread in set(threading.enumerate()) - before].count("rmq-dashboard") == 1
        kept = [sample.at_ms / 1000 for sample in desk.live.samples()]
        assert all(set(each) <= set(kept) for each in heard)


def test_a_client_more_than_twenty_is_told_and_a_place_that_is_left_is_given_again(desk: Desk) -> None:
    async def scenario() -> None:
        streams = [desk.live.stream() for _ in range(CLIENTS_AT_MOST)]
        late = desk.live.stream()
        for stream in streams:
            assert (await anext(stream)).startswith(b"retry")
        with pytest.raises(TooManyClients):
            desk.live.stream()
        with pytest.raises(StopAsyncIteration):
            await anext(late)
        await streams[0].aclose()  # type: ignore[attr-defined]
        assert (await anext(desk.live.stream())).startswith(b"retry")

    try:
        asyncio.run(scenario())
    finally:
        desk.close()


def test_the_end_of_the_dashboard_ends_every_stream(desk: Desk) -> None:
    async def scenario() -> None:
        desk.live.begin()
        stream = desk.live.stream()
        await anext(stream)
        rest = asyncio.create_task(_exhaust(stream))
        await asyncio.to_thread(desk.close)
        await rest

    asyncio.run(asyncio.wait_for(scenario(), LONG_S))


def test_a_sample_counts_what_came_in_and_what_waits(desk: Desk) -> None:
    from rmqclient import PullConsumer  # noqa: PLC0415 - beside its use
    from rmqclient.dashboard.looking.sample import Sampling  # noqa: PLC0415 - as above

    root = desk.store().root
    sampling = Sampling(root)
    try:
        assert sampling.take().rates.published == 0, "one look shows no rate"
        with PullConsumer(root, group="billing") as consumer:
            for queue in consumer.queues("orders"):
                consumer.commit(queue, 0)
        with Producer(root) as producer:
            for _ in range(9):
                producer.send(Message("orders", b"more"))
        sample = sampling.take()
        assert sample.topic_rates["orders"] > 0
        assert sample.rates.published == sample.topic_rates["orders"], "a message counts once for each group"
        assert sample.lag == 10
        rates, lag = sample.by_group["billing"]
        assert (rates, lag) == (sample.rates, 10)
        assert sample.shown("billing")["lag"] == 10
        assert sample.oldest_s > 0
    finally:
        sampling.close()
        desk.close()


async def _exhaust(stream: object) -> None:
    async for _ in stream:  # type: ignore[attr-defined]
        pass
