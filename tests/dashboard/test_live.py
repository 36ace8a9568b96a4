"""The stream of events: one sampler for all, twenty clients at most, and an end."""

from __future__ import annotations

import asyncio
import itertools
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")

import orjson

from rmqclient import Message, Producer
from rmqclient.dashboard.desk import live
from rmqclient.dashboard.desk.desk import Desk
from rmqclient.dashboard.desk.live import CLIENTS_AT_MOST, KEPT, Live, TooManyClients
from rmqclient.dashboard.looking.sample import Kept, Moment, Rates, Sampling
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


def moment(number: int, groups: int = 107, topics: int = 300) -> Moment:
    """Return a moment of a store with as much in it as is promised, in objects of its own as a look makes them."""
    rates = Rates(number + 0.5, number + 0.25, number + 0.125)
    return Moment(
        at_ms=1_000_000 + number,
        rates=rates,
        lag=70_000 + number,
        oldest_s=number + 0.5,
        in_flight=1_000 + number,
        dead_letters=12_000 + number,
        by_group={f"group-{each}": (Rates(*(each + rate for rate in rates)), 300 + number) for each in range(groups)},
        dead_letters_of={f"group-{each}": 1_000 + number for each in range(groups)},
        topic_rates={f"topic-{each}": each + number + 0.5 for each in range(topics)},
    )


def test_a_moment_that_has_passed_shows_charts_what_it_showed_then() -> None:
    now, others = moment(7), moment(8, groups=3)
    kept = Kept(now, Kept(others))
    assert kept.at_ms == now.at_ms
    for group in ("", "group-0", "group-106", "nobody"):
        assert kept.shown(group) == now.shown(group)
    assert Kept(others, kept).shown("group-2") == others.shown("group-2")
    assert Kept(others, kept).shown("group-106") == others.shown("group-106")


def test_what_is_kept_of_the_past_is_small_and_does_not_grow_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Looks:
        """What a sampler takes, as often as the thread asks for it."""

        def __init__(self) -> None:
            self._numbers: Iterator[int] = itertools.count()
            self.passed = {KEPT + 2: threading.Event(), 2 * KEPT: threading.Event()}

        def take(self) -> Moment:
            number = next(self._numbers)
            if number in self.passed:
                self.passed[number].set()
            return moment(number)

        def close(self) -> None:
            pass

    looks = Looks()
    monkeypatch.setattr(live, "_INTERVAL_S", 0.0)
    monkeypatch.setattr(live, "_SHARE_AT_MOST", 1.0)
    sampler = Live(lambda: looks)  # type: ignore[arg-type,return-value] # it is asked for moments alone
    tracemalloc.start()
    try:
        sampler.begin()
        held: list[int] = []
        for passed in looks.passed.values():
            assert passed.wait(4 * LONG_S)
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
        sampler.close()
    assert len(sampler.samples()) == KEPT
    assert held[0] < 5 << 20, "ten minutes of 107 groups"
    assert held[-1] < held[0] + (1 << 19)


async def _exhaust(stream: object) -> None:
    async for _ in stream:  # type: ignore[attr-defined]
        pass
