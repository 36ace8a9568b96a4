"""Schedules: each tick has one message, however many look, with a clock that the test sets."""

from __future__ import annotations

import asyncio
import datetime
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.opening import open_backend
from rmqclient.schedules.cron import Cron
from rmqclient.schedules.cron_sender import LONGEST_SLEEP_S, CronSender
from rmqclient.store import MessageStore, StoreConfig, open_store
from tests.client.conftest import consuming, wait_for

NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)
MINUTE = datetime.timedelta(minutes=1)
_MEETS_S = 0.1


class Clock:
    """Stands still until it is set."""

    def __init__(self, now: datetime.datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime.datetime:
        return self.now


class Looking:
    """One process's sender of a schedule, as far as a test goes."""

    def __init__(self, store: MessageStore, clock: Clock, function: Callable[..., Any] | None = None, **options: Any):
        self.called: list[datetime.datetime] = []
        app = App()
        options.setdefault("misfire_grace", MINUTE)
        app.schedule(options.pop("crontab", "*/5 * * * *"), topic="reports", name="report", **options)(
            function or self.make
        )
        self.sender = CronSender(open_backend(store), Producer(store), app.crons[0], clock)

    def make(self, tick: datetime.datetime) -> str:
        self.called.append(tick)
        return f"{tick:%H:%M:%S}"

    def look(self) -> float:
        return self.sender.look()


def sent(store: MessageStore) -> list[str]:
    """Return the bodies that were sent, in the order of the log."""
    messages = [
        store.messages.at(queue, number)
        for queue in store.topics.all_queues()
        if queue.topic == "reports"
        for number in range(store.topics.max_offset(queue))
    ]
    return [each.body.decode() for each in sorted(messages, key=lambda each: each.commit_log_offset)]


@pytest.mark.guarantee("G36")
def test_of_many_who_look_one_sends_and_the_function_is_called_once(store: MessageStore) -> None:
    clock = Clock(NOON - SECOND)
    looking = [Looking(store, clock) for _ in range(5)]
    assert [each.look() for each in looking] == [1.0] * 5
    assert sent(store) == []
    clock.now = NOON
    for each in looking:
        assert each.look() == LONGEST_SLEEP_S
    assert sent(store) == ["12:00:00"]
    assert [len(each.called) for each in looking] == [1, 0, 0, 0, 0]
    assert looking[0].called == [NOON]


def test_the_sender_sleeps_to_the_next_tick_and_no_longer_than_a_set_clock_may_go_unseen(store: MessageStore) -> None:
    clock = Clock(NOON - datetime.timedelta(milliseconds=250))
    looking = Looking(store, clock)
    assert looking.look() == 0.25
    clock.now = NOON + SECOND
    assert looking.look() == LONGEST_SLEEP_S


@pytest.mark.guarantee("G36")
def test_threads_that_look_at_the_same_moment_send_one_message(store: MessageStore) -> None:
    # Given a function that waits for a moment whether another thread calls it, too, before it says what is sent
    clock, side_by_side = Clock(), threading.Barrier(2)

    def meet(tick: datetime.datetime) -> str:
        with suppress(threading.BrokenBarrierError):
            side_by_side.wait(_MEETS_S)
        return f"{tick:%H:%M:%S}"

    looking = [Looking(store, clock, meet) for _ in range(8)]
    # When all look at each of the times, then one of them has called it
    for minute in range(0, 50, 5):
        side_by_side.reset()
        clock.now = NOON + minute * MINUTE
        threads = [threading.Thread(target=each.look) for each in looking]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sent(store) == [f"12:{minute:02}:00" for minute in range(0, 50, 5)]


@pytest.mark.guarantee("G36")
@pytest.mark.parametrize(("coalesce", "expected"), [(True, ["12:02:00"]), (False, ["12:01:00", "12:02:00"])])
def test_of_ticks_that_nobody_saw_those_within_the_grace_are_sent_the_latest_or_all(
    store: MessageStore, coalesce: bool, expected: list[str]
) -> None:
    clock = Clock(NOON + 2 * MINUTE + 30 * SECOND)
    options: dict[str, Any] = {"crontab": "* * * * *", "misfire_grace": 2 * MINUTE, "coalesce": coalesce}
    Looking(store, clock, **options).look()
    assert sent(store) == expected
    # And another process that starts then has nothing left to do
    Looking(store, clock, **options).look()
    assert sent(store) == expected


def test_a_long_grace_costs_no_look_at_each_tick_that_is_not_sent(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[datetime.datetime] = []
    next_tick = Cron.next_tick

    def counted(cron: Cron, after: datetime.datetime) -> datetime.datetime | None:
        looks.append(after)
        return next_tick(cron, after)

    monkeypatch.setattr(Cron, "next_tick", counted)
    Looking(store, Clock(), crontab="* * * * *", misfire_grace=datetime.timedelta(days=30)).look()
    assert sent(store) == ["12:00:00"]
    assert len(looks) < 10


@pytest.mark.guarantee("G36")
@pytest.mark.parametrize(
    ("zone", "crontab", "begin", "expected"),
    [
        ("Europe/Berlin", "30 2 * * *", "2026-03-29T00:50+00:00", ["03:30+0200"]),
        ("America/Havana", "0 0 * * sun", "2026-03-08T04:50+00:00", ["01:00-0400"]),
        ("Europe/Berlin", "30 2 * * *", "2026-10-25T00:20+00:00", ["02:30+0200", "02:30+0100"]),
    ],
)
def test_who_looks_all_night_while_the_clocks_change_sends_what_is_planned(
    store: MessageStore, zone: str, crontab: str, begin: str, expected: list[str]
) -> None:
    clock = Clock(datetime.datetime.fromisoformat(begin))
    looking = Looking(store, clock, lambda tick: f"{tick:%H:%M%z}", crontab=crontab, timezone=zone)
    for _ in range(160):
        looking.look()
        clock.now += 30 * SECOND
    assert sent(store) == expected


def test_a_tick_beyond_the_grace_is_over(store: MessageStore) -> None:
    clock = Clock(NOON + MINUTE)
    looking = Looking(store, clock)
    looking.look()
    assert sent(store) == []
    clock.now = NOON + 5 * MINUTE
    looking.look()
    assert sent(store) == ["12:05:00"]


@pytest.mark.guarantee("G36")
def test_a_clock_that_is_set_sends_no_tick_again_and_passes_over_none(store: MessageStore) -> None:
    clock = Clock()
    looking = Looking(store, clock)
    looking.look()
    # Back by an hour, and on through the same noon
    for minutes in (-60, -58, -55, -1, 0, 4, 5):
        clock.now = NOON + minutes * MINUTE
        looking.look()
    assert sent(store) == ["12:00:00", "11:00:00", "11:05:00", "12:05:00"]


def test_a_function_that_fails_is_called_again_while_the_grace_lasts(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    calls: list[int] = []

    def flaky() -> bytes:
        calls.append(1)
        if len(calls) < 4:
            raise LookupError("the database is away")
        return b"done"

    looking = Looking(store, clock, flaky)
    pauses = []
    while not sent(store):
        pauses.append(looking.look())
        clock.now += SECOND
    assert pauses[:3] == [1, 2, 4]
    assert [each.levelname for each in caplog.records] == ["ERROR"] * 3
    assert len(calls) == 4
    looking.look()
    assert len(calls) == 4


def test_a_message_that_can_never_be_sent_is_given_up_with_its_grace(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    looking = Looking(store, clock, lambda: Message("other", b""))
    looking.look()
    assert "its messages go to 'reports'" in caplog.text
    caplog.clear()
    clock.now = NOON + 2 * MINUTE
    looking.look()
    assert (caplog.text, sent(store)) == ("", [])


def test_a_function_that_returns_none_sends_nothing_and_each_process_asks_its_own_once(store: MessageStore) -> None:
    clock = Clock()
    calls: list[int] = []
    looking = [Looking(store, clock, lambda: calls.append(1)) for _ in range(2)]
    for _ in range(3):
        for each in looking:
            each.look()
    assert (sent(store), len(calls)) == ([], 2)


def test_who_meets_another_one_in_its_function_looks_again(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> bytes:
        begun.set()
        assert go_on.wait(30)
        return b"slow"

    first, second = Looking(store, clock, slow), Looking(store, clock)
    thread = threading.Thread(target=first.look)
    thread.start()
    assert begun.wait(30)
    with caplog.at_level(logging.INFO):
        assert second.look() == 1
    assert "will look again" in caplog.text
    go_on.set()
    thread.join()
    second.look()
    assert sent(store) == ["slow"]


@pytest.mark.guarantee("G36")
def test_a_tick_whose_message_retention_may_have_removed_is_not_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = StoreConfig(commit_log_file_bytes=65_536, max_body_bytes=16_384)
    clock = Clock(datetime.datetime.now(datetime.UTC).replace(second=0, microsecond=0) - 10 * MINUTE)
    with open_store(tmp_path / "store", config, housekeeping=False) as store, Producer(store) as producer:
        Looking(store, clock, crontab="* * * * *").look()
        assert len(sent(store)) == 1
        while len(store.log_files.bases()) < 3:
            producer.send(Message("fill", b"x" * 10_000))
        store.flusher.flush_thorough()
        store.retention._remove_log_file(0)
        store.retention.clean()
        assert store.state.min_offset > 0
        assert store.messages.by_key("reports", f"cron-report-{clock.now:%Y-%m-%dT%H:%M:%SZ}") == []
        Looking(store, clock, crontab="* * * * *").look()
        assert "may have been removed" in caplog.text
        # But what is younger than the oldest message is known
        clock.now = datetime.datetime.now(datetime.UTC) + 2 * MINUTE
        later = Looking(store, clock, crontab="* * * * *")
        later.look()
        assert len(later.called) == 1


def test_a_push_consumer_sends_what_its_application_schedules_and_handles_it(store: MessageStore) -> None:
    app = App()
    received: list[ReceivedMessage] = []
    app.schedule(every=SECOND, topic="reports", name="report")(lambda tick: f"{tick:%H:%M:%S}")
    app.handler("reports", group="readers")(received.append)
    with consuming(store, app) as consumer:
        wait_for(lambda: len(received) >= 2, "two messages")
    assert consumer.counters.failed == 0
    keys = [message.keys[-1] for message in received]
    assert len({*keys}) == len(keys)
    assert {key[-9:-1] for key in keys} == {message.body.decode() for message in received}
    assert all(key.startswith("cron-report-") for key in keys)


def test_a_schedule_whose_function_hangs_counts_as_left_when_the_consumer_drains(store: MessageStore) -> None:
    app = App()
    begun, go_on = threading.Event(), threading.Event()

    @app.schedule(every=SECOND, topic="reports")
    def hangs() -> None:
        begun.set()
        assert go_on.wait(30)

    consumer = PushConsumer(store, [], crons=app.crons)
    consumer.start()
    assert begun.wait(30)
    consumer.stop_taking()
    assert consumer.drain(0.01) == 1
    go_on.set()
    assert consumer.drain(10) == 0
    consumer.close()


@pytest.mark.guarantee("G101")
@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit, ValueError])
def test_whatever_a_function_raises_its_schedule_goes_on(store: MessageStore, kind: type[BaseException]) -> None:
    # Given a schedule whose function ends as no function should
    clock, failing = Clock(NOON), [kind]

    def make() -> str:
        if failing:
            raise failing[0]
        return "made"

    looking = Looking(store, clock, make)
    assert looking.look() == 1.0

    # When it looks again, Then it sends
    failing.clear()
    looking.look()
    assert sent(store) == ["made"]


@pytest.mark.guarantee("G101")
def test_a_schedule_is_overdue_when_nobody_has_sent_for_a_minute(store: MessageStore) -> None:
    # Given a schedule of every five minutes, whose function fails
    clock, failing = Clock(NOON - SECOND), [ValueError]

    def make() -> str:
        if failing:
            raise failing[0]
        return "made"

    looking = Looking(store, clock, make)
    looking.look()
    assert not looking.sender.is_overdue

    # When a minute has passed, Then it is overdue, also when the tick is dropped
    clock.now = NOON
    looking.look()
    assert not looking.sender.is_overdue
    clock.now = NOON + 2 * MINUTE
    assert looking.sender.is_overdue
    looking.look()
    assert looking.sender.is_overdue

    # And no more when the next tick is sent
    failing.clear()
    clock.now = NOON + 5 * MINUTE
    looking.look()
    assert sent(store) == ["made"]
    assert not looking.sender.is_overdue


def test_asking_whether_a_schedule_is_overdue_looks_for_no_tick(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = Looking(store, Clock(NOON), lambda: "made")
    looking.look()
    monkeypatch.setattr(Cron, "next_tick", lambda *_: pytest.fail("each heartbeat of each schedule would look"))
    assert not looking.sender.is_overdue


@pytest.mark.guarantee("G101")
def test_a_function_that_hangs_is_seen_as_a_call_that_runs(store: MessageStore) -> None:
    # Given a schedule of each second whose function hangs
    app, hanging, called = App(), threading.Event(), threading.Event()

    @app.schedule(every=SECOND, topic="reports", name="report")
    def hang() -> str:
        called.set()
        hanging.wait(20)
        return "made"

    # When it has been called, Then the consumer counts it as running, since then
    with consuming(store, app) as consumer:
        assert called.wait(10)
        assert consumer.counters.in_flight == 1
        assert consumer.counters.message_started_ns > 0
        hanging.set()
