"""Sleeps and waits: the message comes again when its time or its signal has come, and the worker is free until then."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import pytest

from rmqclient import App, ReceivedMessage, RetentionConfig, RetryPolicy, StoreConfig
from rmqclient.admin import Admin
from rmqclient.errors import SignalTimeout, StepChanged, StepError, StepRejected, StepsLost
from rmqclient.local.backend import local_backend
from rmqclient.steps.ends import Paused
from rmqclient.steps.journal import Journal
from rmqclient.steps.record import Key, Record
from rmqclient.steps.steps import Steps
from rmqclient.store import clock
from rmqclient.testing import Drained, Kit

Rmq = Callable[..., Kit]

ONCE = RetryPolicy(max_retries=0)
SHORT = StoreConfig(
    commit_log_file_bytes=1 << 16,
    max_body_bytes=1 << 14,
    consume_queue_file_entries=2_000,
    index_slots=1_000,
    index_entries=4_000,
    retention=RetentionConfig(file_reserved_hours=24),
)
"""A store that keeps its log for a day."""


def forget(kit: Kit, days: int) -> None:
    """Let so many days pass, and retention remove all that stands in the log before them."""
    store = kit._store
    begin = store.state.published_to
    for _ in range(days):
        kit.advance(days=1)
        for _ in range(6):
            kit.send("others", b"x" * (1 << 14))
    store.flusher.flush_thorough()
    store.retention.clean(requested=True)  # as far as the housekeeper has not been there
    assert store.state.min_offset >= begin


@dataclass
class Approval:
    by: str


def test_a_sleep_has_one_length(rmq: Rmq) -> None:
    app, raised = App(), list[ValueError]()

    @app.handler("orders", group="billing", retry=ONCE)
    def bill(message: ReceivedMessage) -> None:
        try:
            message.steps.sleep(60, days=1)
        except ValueError as error:
            raised.append(error)

    kit = rmq(app)
    kit.send("orders")
    kit.drain()
    assert len(raised) == 1


@pytest.mark.guarantee("G65")
def test_a_sleep_ends_the_call_uses_no_attempt_and_goes_on_when_it_is_over(rmq: Rmq) -> None:
    app, ran = App(), list[tuple[str, int]]()

    @app.handler("orders", group="billing", retry=ONCE)
    def bill(message: ReceivedMessage) -> None:
        step = message.steps
        step("charge", lambda: ran.append(("charge", message.delivery_attempt)))
        step.sleep(days=3)
        step("remind", lambda: ran.append(("remind", message.delivery_attempt)))
        step.sleep(timedelta(minutes=1))
        step("close", lambda: ran.append(("close", message.delivery_attempt)))

    kit = rmq(app)
    sent = kit.send("orders", {"id": 7})
    drained = kit.drain()
    assert (drained.handled, drained.failed, drained.dead_lettered) == (0, 0, 0)
    kit.advance(days=2, hours=23, minutes=59)
    kit.drain()
    assert ran == [("charge", 1)]
    kit.advance(minutes=1)
    kit.drain()
    assert ran == [("charge", 1), ("remind", 1)]
    kit.advance(minutes=1)
    assert kit.drain().handled == 1
    assert ran == [("charge", 1), ("remind", 1), ("close", 1)]
    assert [each.message_id for each in kit.sent("%RETRY%billing")] == [sent.message_id] * 2


@pytest.mark.guarantee("G65")
def test_a_signal_wakes_what_waits_for_it_and_its_payload_is_the_value(rmq: Rmq) -> None:
    app, seen = App(), list[object]()

    @app.handler("orders", group="billing", retry=ONCE)
    def bill(message: ReceivedMessage) -> None:
        step = message.steps
        seen.append("called")
        seen.append(step[Approval].wait_for("approved", timeout=timedelta(days=7)))
        seen.append(step.wait_for("counted"))

    kit = rmq(app)
    sent = kit.send("orders")
    kit.drain()
    assert not kit.producer.signal(sent.message_id, "counted", [1], group="billing"), "nobody waits for that yet"
    kit.drain()
    assert seen == ["called"]
    assert kit.producer.signal(sent.message_id, "approved", Approval("Ada"), group="billing")
    assert not kit.producer.signal(sent.message_id, "approved", Approval("Bob"), group="billing"), "the first counts"
    kit.drain()
    assert seen == ["called", "called", Approval("Ada"), [1]]
    kit.advance(days=8)
    kit.drain()
    assert len(seen) == 4, "what was woken does not come once more when its time is up"


@pytest.mark.guarantee("G65")
def test_a_signal_that_came_before_the_message_waits_is_not_lost(rmq: Rmq) -> None:
    app, seen = App(), list[object]()

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        seen.append(message.steps.wait_for("approved", timeout=5))

    kit = rmq(app)
    sent = kit.send("orders")
    kit.producer.signal(sent.message_id, "approved", "yes", group="billing")
    kit.drain()
    assert seen == ["yes"]


@pytest.mark.guarantee("G65")
def test_a_signal_that_comes_while_the_message_goes_to_wait_wakes_it(rmq: Rmq, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a signal that is stored after the handler looked for it, and before the copy that waits is stored
    app, seen = App(), list[object]()

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        seen.append(message.steps.wait_for("approved", timeout=timedelta(days=1)))

    kit = rmq(app)
    sent = kit.send("orders")
    store = Paused.store

    def store_late(end: Paused) -> None:
        assert not kit.producer.signal(sent.message_id, "approved", "yes", group="billing"), "there is no copy yet"
        store(end)

    monkeypatch.setattr(Paused, "store", store_late)

    # Then the message is delivered at once, and not after a day
    kit.drain()
    assert seen == ["yes"]


@pytest.mark.guarantee("G63")
def test_a_message_that_was_left_over_runs_no_step_that_its_copy_finishes_meanwhile(
    rmq: Rmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a message that a kill has left over beside the copy of it that sleeps
    app, ran = App(), list[str]()

    @app.handler("orders", group="billing", retry=ONCE)
    def bill(message: ReceivedMessage) -> None:
        message.steps("charge", ran.append, "charge")
        message.steps.sleep(minutes=1)
        message.steps("ship", ran.append, "ship")

    kit = rmq(app)
    store, sent = kit._store, kit.send("orders")
    left_over = store.messages.at(sent.queue, sent.queue_offset)
    kit.drain()
    kit.advance(minutes=1)

    # When the copy is finished by another thread while the steps of the message are looked for
    find, journal = Journal.find, Journal(local_backend(store), "billing", "a test")

    def find_slowly(journal: Journal, message_id: str, *, is_copy: bool = True) -> dict[Key, Record]:
        found = find(journal, message_id, is_copy=is_copy)
        monkeypatch.setattr(Journal, "find", find)
        kit.drain()
        return found

    monkeypatch.setattr(Journal, "find", find_slowly)
    steps = Steps(journal, left_over, lambda: True)
    assert ran == ["charge", "ship"]

    # Then no step runs again
    steps("charge", ran.append, "charge")
    steps.sleep(minutes=1)
    steps("ship", ran.append, "ship")
    assert ran == ["charge", "ship"]


@pytest.mark.guarantee("G65")
def test_a_wait_that_is_over_is_over_for_good(rmq: Rmq) -> None:
    app, seen = App(), list[str]()

    @app.handler("orders", group="billing", retry=RetryPolicy(delays=(1,)))
    def bill(message: ReceivedMessage) -> None:
        try:
            message.steps.wait_for("approved", timeout=timedelta(hours=1))
        except SignalTimeout as error:
            seen.append(str(error))
        if message.delivery_attempt == 1:
            raise ConnectionError

    kit = rmq(app)
    sent = kit.send("orders")
    kit.drain()
    kit.advance(hours=1)
    kit.drain(raises=False)
    kit.producer.signal(sent.message_id, "approved", group="billing")
    kit.advance(seconds=1)
    kit.drain()
    assert len(seen) == 2, "it was not approved in the first attempt, and is not in the second"
    assert "waited for 'approved' in vain" in seen[0]


def test_a_signal_for_nobody_or_without_a_name_is_refused(rmq: Rmq) -> None:
    kit = rmq()
    sent = kit.send("orders")
    with pytest.raises(StepError, match="no message has the id 'ABC'"):
        kit.producer.signal("ABC", "approved", group="billing")
    with pytest.raises(StepRejected, match="printable"):
        kit.producer.signal(sent.message_id, "", group="billing")
    with pytest.raises(StepRejected, match=r"signal 'approved' has 4,194,305 bytes"):
        kit.producer.signal(sent.message_id, "approved", b"x" * (4 << 20) + b"x", group="billing")


def test_a_payload_that_does_not_fit_is_told(rmq: Rmq) -> None:
    app = App()

    @app.handler("orders", group="billing", retry=ONCE)
    def bill(message: ReceivedMessage) -> None:
        message.steps[Approval].wait_for("approved")

    kit = rmq(app)
    sent = kit.send("orders")
    kit.producer.signal(sent.message_id, "approved", {"who": "Ada"}, group="billing")
    with pytest.raises(StepChanged, match=r"signal 'approved' of message .* does not fit Approval"):
        kit.drain()


def test_what_catches_the_pause_gets_it_again_at_the_next_step(rmq: Rmq) -> None:
    app, ran = App(), list[str]()

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        with suppress(BaseException):  # what no handler should do
            message.steps.sleep(hours=1)
        message.steps("charge", lambda: ran.append("charge"))

    kit = rmq(app)
    kit.send("orders")
    kit.drain()
    assert ran == []
    kit.advance(hours=1)
    kit.drain()
    assert ran == ["charge"]


@pytest.mark.guarantee("G65")
def test_what_a_sleeping_message_has_finished_outlives_retention(rmq: Rmq) -> None:
    # Given a message that sleeps for longer than the store keeps its files
    app, ran = App(), list[str]()

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        step = message.steps
        step("charge", lambda: ran.append("charge"))
        step.sleep(days=30)
        step("ship", lambda: ran.append("ship"))

    kit = rmq(app, config=SHORT)
    kit.send("orders")
    kit.drain()

    # When retention has removed what was stored before it fell asleep
    forget(kit, days=29)

    # Then it still goes on behind its finished step
    kit.advance(days=2)
    kit.drain()
    assert ran == ["charge", "ship"]


def wait_for_another(message: ReceivedMessage) -> None:
    message.steps.wait_for("packed", timeout=timedelta(days=5))


def sleep_long(message: ReceivedMessage) -> None:
    message.steps.sleep(days=5)


def fail_once(message: ReceivedMessage) -> None:
    message.steps("look", int)
    if message.delivery_attempt == 1:
        raise ConnectionError


@pytest.mark.guarantee("G65")
@pytest.mark.parametrize(
    ("first", "delay"),
    [(wait_for_another, None), (sleep_long, None), (fail_once, None), (id, timedelta(days=5))],
    ids=["waits for another one", "sleeps", "failed", "is delayed"],
)
def test_a_signal_that_came_early_outlives_retention(
    rmq: Rmq, first: Callable[[ReceivedMessage], object], delay: timedelta | None
) -> None:
    # Given a message that comes again after longer than the store keeps its files
    app, seen = App(), list[object]()

    @app.handler("orders", group="billing", retry=RetryPolicy(delays=(timedelta(days=5),)))
    def bill(message: ReceivedMessage) -> None:
        with suppress(SignalTimeout):
            first(message)
        seen.append(message.steps.wait_for("approved", timeout=timedelta(days=1)))

    kit = rmq(app, config=SHORT)
    sent = kit.send("orders", delay=delay)
    kit.drain(raises=False)

    # When retention has removed the signal that came meanwhile
    for payload in ("yes", "no"):
        assert not kit.producer.signal(sent.message_id, "approved", payload, group="billing")
    forget(kit, days=3)

    # Then the message gets it nevertheless
    kit.advance(days=3)
    kit.drain()
    assert seen == ["yes"]
    assert len([each for each in kit.sent("%STEPS%billing") if b"yes" in each.body]) == 1, "it was kept once"


@pytest.mark.guarantee("G65")
def test_a_signal_that_comes_while_the_handler_fails_outlives_retention(rmq: Rmq) -> None:
    app, seen = App(), list[object]()

    @app.handler("orders", group="billing", retry=RetryPolicy(delays=(timedelta(days=5),)))
    def bill(message: ReceivedMessage) -> None:
        step = message.steps
        if message.delivery_attempt == 1:
            kit.producer.signal(message.message_id, "approved", "yes", group="billing")
            raise ConnectionError
        seen.append(step.wait_for("approved", timeout=timedelta(days=1)))

    kit = rmq(app, config=SHORT)
    kit.send("orders")
    kit.drain(raises=False)
    forget(kit, days=3)
    kit.advance(days=3)
    kit.drain()
    assert seen == ["yes"]


@pytest.mark.guarantee("G65")
@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "is stopped behind its copy"])
def test_a_signal_that_comes_while_the_message_falls_asleep_outlives_retention(
    rmq: Rmq, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool
) -> None:
    # Given a signal that is stored after the handler looked for it, and before the copy that sleeps is stored
    app, seen = App(), list[object]()

    @app.handler("orders", group="billing", retry=ONCE)
    def bill(message: ReceivedMessage) -> None:
        sleep_long(message)
        seen.append(message.steps.wait_for("approved", timeout=timedelta(days=1)))

    kit = rmq(app, config=SHORT)
    sent = kit.send("orders")
    keep = Journal.keep_late_signals
    store = Paused.store

    def store_late(end: Paused) -> None:
        kit.producer.signal(sent.message_id, "approved", "yes", group="billing")
        store(end)

    def keep_late(journal: Journal, message_id: str, until_ms: int) -> None:
        monkeypatch.setattr(Journal, "keep_late_signals", keep)
        if not goes_on:
            raise OSError("stopped")
        keep(journal, message_id, until_ms)

    monkeypatch.setattr(Paused, "store", store_late)
    monkeypatch.setattr(Journal, "keep_late_signals", keep_late)
    kit.drain()
    monkeypatch.setattr(Paused, "store", store)
    kit.advance(minutes=1)
    kit.drain()

    # Then the message that wakes up when retention has removed it gets it nevertheless
    forget(kit, days=3)
    kit.advance(days=3)
    kit.drain()
    assert seen == ["yes"]


@pytest.mark.guarantee("G66")
def test_a_message_of_a_compact_topic_that_outlived_its_results_runs_no_step_again(rmq: Rmq) -> None:
    # Given a message of a compact topic whose step is done
    app, ran = App(), list[str]()

    @app.handler("prices", group="billing", retry=ONCE)
    def bill(message: ReceivedMessage) -> None:
        message.steps("charge", lambda: ran.append("charge"))

    kit = rmq(app, config=SHORT)
    kit.producer.create_topic("prices", 1, cleanup_policy="compact")
    kit.send("prices", {"price": 7}, keys=["AAPL"])
    kit.drain()

    # When its group goes back to it, Then its result is there
    assert gone_back(kit).handled == 1
    assert ran == ["charge"]

    # And when retention has removed the log of that time, Then it is an error
    forget(kit, days=2)
    with pytest.raises(StepsLost, match="older than the log"):
        gone_back(kit).check()
    assert ran == ["charge"]


def gone_back(kit: Kit) -> Drained:
    """Move the group to the oldest price, and handle it; its consumer learns of the move a moment later."""
    with Admin(kit._store) as admin:
        admin.seek("billing", "prices", "earliest")
    deadline = time.monotonic() + 60
    while True:
        drained = kit.drain(raises=False)
        if drained.handled or drained.failed:
            return drained
        assert time.monotonic() < deadline


@pytest.mark.guarantee("G66")
def test_results_that_are_gone_are_an_error_and_no_step_runs_again(rmq: Rmq, monkeypatch: pytest.MonkeyPatch) -> None:
    app, ran = App(), list[str]()

    @app.handler("orders", group="billing", retry=ONCE)
    def bill(message: ReceivedMessage) -> None:
        message.steps("charge", lambda: ran.append("charge"))
        message.steps.sleep(hours=1)

    kit = rmq(app)
    kit.send("orders")
    kit.drain()
    kit.advance(hours=1)
    monkeypatch.setattr("rmqclient.steps.journal.Journal.find", lambda *_args, **_named: {})
    with pytest.raises(StepsLost, match="had 2 stored steps, and the store has 0 of them"):
        kit.drain()
    assert ran == ["charge"]
    assert clock.wall_ms()
