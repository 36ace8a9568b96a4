"""Retries: what failed comes back through the retry topic, or ends as a dead letter; nothing is lost on the way."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.admin import Admin
from rmqclient.backend import Backend
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.consuming.reader import Reader
from rmqclient.failures.dead_letters import DeadLetter, Selection, select
from rmqclient.failures.failure import Failure, history
from rmqclient.failures.retry import Outcome, Retries, dead_letter_topic, retry_topic
from rmqclient.store import MessageQueue, MessageStore, StoreConfig, TagSet, boottime, open_store
from rmqclient.store.settings.replication import OnLost, Replication, Sync
from tests.client.conftest import NOWHERE, SOON, consuming, wait_for


@pytest.mark.guarantee("G21")
def test_a_retry_shows_its_own_topic_and_says_which_attempt_it_is(backend: Backend, producer: Producer) -> None:
    app, seen = App(NOWHERE), list[tuple[object, ...]]()

    @app.handler("orders", group="g", retry=SOON)
    def handle(message: ReceivedMessage) -> None:
        seen.append((message.topic, message.queue.topic, message.delivery_attempt, message.message_id, message.tags))
        if message.delivery_attempt < 3:
            raise ValueError("not yet")

    sent = producer.send(Message("orders", b"1", tags="paid"))
    begun = boottime()
    with consuming(backend, app):
        wait_for(lambda: len(seen) == 3, "the third attempt")
    assert seen == [
        ("orders", "orders", 1, sent.message_id, "paid"),
        ("orders", "%RETRY%g", 2, sent.message_id, "paid"),
        ("orders", "%RETRY%g", 3, sent.message_id, "paid"),
    ]
    assert (boottime() - begun) / 1e9 > 2.0, "each waited for its delay level"
    record = backend.queues.message_at(MessageQueue("%RETRY%g", 0), 0)
    assert record.topic == "%RETRY%g", "the log shows what stands there"


@pytest.mark.guarantee("G21")
def test_a_retry_waits_for_any_delay_and_the_last_delay_repeats(backend: Backend, producer: Producer) -> None:
    app, times = App(NOWHERE), list[float]()

    @app.handler("orders", group="g", retry=RetryPolicy(delays=(0.3, timedelta(milliseconds=50))))
    def handle(message: ReceivedMessage) -> None:
        times.append(time.monotonic())
        if message.delivery_attempt < 4:
            raise ValueError("not yet")

    sent = producer.send(Message("orders", b"1", tags="paid"), delay=0.02)
    with consuming(backend, app):
        wait_for(lambda: len(times) == 4, "the fourth attempt")
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert [pause >= least for pause, least in zip(pauses, (0.3, 0.05, 0.05), strict=True)] == [True] * 3
    retries = [backend.queues.message_at(MessageQueue("%RETRY%g", 0), offset) for offset in range(3)]
    assert [(each.message_id, each.reconsume_times, each.tags) for each in retries] == [
        (sent.message_id, attempt, "paid") for attempt in (1, 2, 3)
    ]


@pytest.mark.guarantee("G22")
def test_past_its_retries_a_message_is_a_dead_letter_with_its_history(backend: Backend, producer: Producer) -> None:
    app = App(NOWHERE)

    @app.handler("orders", group="g", retry=RetryPolicy(max_retries=1, delay_levels=(1,)))
    def handle(message: ReceivedMessage) -> None:
        raise ValueError(f"attempt {message.delivery_attempt}")

    producer.send(Message("orders", b"1", keys=("k",)))
    with consuming(backend, app) as consumer:
        wait_for(lambda: letters(backend), "it is given up")
        client_id = consumer.client_id
    (letter,) = letters(backend)
    told = [(each["attempt"], each["error"], each["text"], each["worker"]) for each in letter.failures]
    assert told == [(1, "ValueError", "attempt 1", client_id), (2, "ValueError", "attempt 2", client_id)]
    assert "in handle" in letter.failures[1]["trace"]
    assert letter.message.keys == ("k",)


def test_exceptions_that_no_retry_can_help_make_a_dead_letter_at_once(backend: Backend, producer: Producer) -> None:
    app = App(NOWHERE)

    @app.handler("orders", group="g", retry=RetryPolicy(dead_letter_on=(LookupError,)))
    def handle(message: ReceivedMessage) -> None:
        raise KeyError(message.body)

    producer.send(Message("orders", b"1"))
    with consuming(backend, app):
        wait_for(lambda: letters(backend), "it is given up")
    assert retry_topic("g") not in backend.topics.names()


def test_handlers_of_one_group_get_their_own_retries_and_never_run_in_more_threads_than_asked(
    backend: Backend, producer: Producer
) -> None:
    app, failed, handled = App(NOWHERE), set[bytes](), Counter[tuple[str, str]]()
    running, most, lock = Counter[str](), Counter[str](), threading.Lock()

    def handler_of(topic: str) -> None:
        @app.handler(topic, group="g", retry=SOON)
        def handle(message: ReceivedMessage) -> None:
            with lock:
                running[topic] += 1
                most[topic] = max(most[topic], running[topic])
            threading.Event().wait(0.002)
            with lock:
                running[topic] -= 1
            if message.body not in failed:
                failed.add(message.body)
                raise ValueError("the first time")
            handled[topic, message.topic] += 1

    for topic in ("a", "b", "c"):
        handler_of(topic)
        for number in range(30):
            producer.send(Message(topic, f"{topic}{number}".encode()))
    with consuming(backend, app):
        wait_for(lambda: handled.total() == 90, "all are handled the second time", timeout_s=20)
        wait_for(lambda: all(queue.lag == 0 for queue in Admin(backend).lag("g")), "and acknowledged")
    assert handled == {("a", "a"): 30, ("b", "b"): 30, ("c", "c"): 30}
    assert most == {"a": 1, "b": 1, "c": 1}


def test_a_retry_for_a_topic_that_nobody_handles_here_is_sent_back_and_not_lost(
    backend: Backend, producer: Producer
) -> None:
    app, seen = App(NOWHERE), list[bytes]()

    @app.handler("kept", group="g", retry=RetryPolicy(max_retries=2, delays=(0.05,), retry_on=(ValueError,)))
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    # Given a message that failed in a topic whose handler was taken out of the application
    gone = App(NOWHERE)

    @gone.handler("gone", group="g", retry=SOON)
    def fail(message: ReceivedMessage) -> None:
        raise ValueError("no")

    producer.send(Message("gone", b"1"))
    with consuming(backend, gone):
        wait_for(lambda: retry_topic("g") in backend.topics.names(), "it failed once")
    producer.send(Message("kept", b"2"))
    with consuming(backend, app):
        wait_for(lambda: letters(backend), "it is given up", timeout_s=20)
    (letter,) = letters(backend)
    assert letter.error == "LookupError: this process has no handler of group g for topic gone"
    assert [each["attempt"] for each in letter.failures] == [1, 2, 3], "what another handler retries says nothing of it"
    assert seen == [b"2"]


ROLLED_OUT = RetryPolicy(max_retries=1, delays=(0.05,), retry_on=(ConnectionError,))


def test_a_retry_that_comes_to_a_process_without_its_handler_goes_on_to_the_one_that_has_it(
    store: MessageStore, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    old, new, attempts = App(NOWHERE), App(NOWHERE), list[int]()
    old.handler("orders", group="g", retry=ROLLED_OUT)(lambda _: None)

    @new.handler("refunds", group="g", retry=ROLLED_OUT)
    def handle(message: ReceivedMessage) -> None:
        attempts.append(message.delivery_attempt)
        if message.delivery_attempt == 1:
            raise ConnectionError("not yet")

    # Given two versions of an application, of which the old one has the retry topic
    older, newer = PushConsumer(store, old.handlers, client_id="a"), PushConsumer(store, new.handlers, client_id="b")
    with older, newer:
        producer.send("refunds", b"1")
        wait_for(lambda: len(attempts) == 2, "it comes to the new one")
        wait_for(lambda: all(each.lag == 0 for each in Admin(store).lag("g")), "and is acknowledged")
        assert older.counters.failed == 0
    assert attempts == [1, 2]
    assert list(select(store, "g", Selection())) == []
    (told,) = [record.getMessage() for record in caplog.records if "no handler of the group" in record.getMessage()]
    assert "group g: " in told
    assert "of topic refunds" in told


def test_a_retry_that_no_process_takes_in_the_end_is_a_dead_letter(
    store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqclient.delivery.modes.send_back._PASSED_ON_AT_MOST", 1)
    # Given a handler that keeps an order since its message failed: it takes nothing from the retry topic
    gone, app, other = App(NOWHERE), App(NOWHERE), App(NOWHERE)

    @gone.handler("refunds", group="g", retry=RetryPolicy(delays=(0.05,)))
    def fail(message: ReceivedMessage) -> None:
        raise ValueError("no")

    app.handler("orders", group="g", retry=ROLLED_OUT)(lambda _: None)
    other.handler("refunds", group="g", order="queue")(lambda _: None)
    producer.send("refunds", b"1")
    with consuming(store, gone):
        wait_for(lambda: retry_topic("g") in store.topics.topics(), "it failed once")
    monkeypatch.setattr("rmqclient.consuming.retry_topic._ASIDE_S", 0.1)
    with consuming(store, other), consuming(store, app):
        wait_for(lambda: list(select(store, "g", Selection())), "it is given up")
    (letter,) = select(store, "g", Selection())
    *_, passed_on, counted = letter.failures
    assert passed_on["error"] == counted["error"] == "LookupError"
    assert passed_on["attempt"] == counted["attempt"]


@pytest.mark.guarantee("G21")
def test_a_message_that_cannot_be_stored_for_its_retry_is_not_acknowledged_and_tried_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a disk that the store takes for full, and no housekeeper that would find out that it is not
    with open_store(tmp_path / "store", housekeeping=False) as store, Producer(store) as producer:
        refuse_and_allow(store, producer, monkeypatch)


def refuse_and_allow(store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    app, attempts = App(store.root), list[int]()

    @app.handler("orders", group="g", retry=SOON)
    def handle(message: ReceivedMessage) -> None:
        attempts.append(message.delivery_attempt)
        raise ValueError("no")

    producer.send(Message("orders", b"1"))
    refusing = True

    monkeypatch.setattr(store.disk, "_fullness", lambda: "no room" if refusing else None)
    store.state.disk_full = 1
    with consuming(store, app, ConsumerConfig(local_retry_ms=30)):
        # Then it is tried in place, and counted
        wait_for(lambda: len(attempts) >= 3, "it is tried in place")
        (queue,) = [each for each in Admin(store).lag("g") if each.lag]
        assert queue.topic == "orders"

        # And stored for its retry as soon as there is room
        refusing = False
        store.state.disk_full = 0
        wait_for(lambda: all(each.lag == 0 for each in Admin(store).lag("g")), "it is sent back")
    assert attempts[:3] == [1, 2, 3]
    waiting = [
        store.messages.at(queue, 0)
        for queue in store.topics.queues("SCHEDULE_TOPIC_XXXX") + store.topics.queues(retry_topic("g"))
        if store.topics.max_offset(queue)
    ]
    assert waiting[0].reconsume_times == len(attempts)
    assert len(history(waiting[0].properties)) == 1


def test_memory_that_runs_out_is_a_failure_of_the_message(tmp_path: Path) -> None:
    app, attempts = App(tmp_path), list[int]()

    @app.handler("orders", group="g", retry=RetryPolicy(max_retries=0))
    def handle(message: ReceivedMessage) -> None:
        attempts.append(len(bytearray(1 << 62)))

    with open_store(tmp_path, StoreConfig()) as store, Producer(store) as producer:
        producer.send(Message("orders", b"1"))
        with consuming(store, app):
            wait_for(lambda: list(select(store, "g", Selection())), "it is given up")
        (letter,) = select(store, "g", Selection())
    assert letter.error.startswith("MemoryError")


def test_a_queue_is_not_released_while_one_of_its_messages_is_sent_back(
    store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a message that two processes died with
    queue = producer.create_topic("orders", 1)[0]
    producer.send(Message("orders", b"1"))
    table = store.members()
    message: ReceivedMessage | None = None
    for _ in range(2):
        member = table.join("g", "orders", "dead", "*")
        slot = member.queue_slot(queue)
        grant = store.grants.grant(slot, member.take(slot, 10_000) or 0, TagSet(()))
        (running,) = table.running.claim(member.slot, member.incarnation, 1)
        message = message.redelivered() if message else grant.take(1, 100)[0]
        running.serve(slot.number, grant.epoch)
        running.begin(message)
        grant.release()
        member.leave()

    # When the next owner sends it back
    app, is_handling = App(store.root), list[bool]()
    send_back = Retries.send_back

    def looked_at(retries: Retries, message: ReceivedMessage, *failures: Failure) -> Outcome:
        (held,) = consumer.subscriptions[0].delivery.queues
        is_handling.append(consumer.subscriptions[0].delivery.is_handling(held))
        return send_back(retries, message, *failures)

    @app.handler("orders", group="g")
    def handle(message: ReceivedMessage) -> None:
        raise AssertionError("it is not run in place again")

    monkeypatch.setattr(Retries, "send_back", looked_at)
    consumer = PushConsumer(store, app.handlers)
    consumer.start()
    wait_for(lambda: all(each.lag == 0 for each in Admin(store).lag("g")) and is_handling, "it is sent back")
    consumer.close()

    # Then the queue counts as one of which something runs, so that it waits for that
    assert is_handling == [True]


def letters(backend: Backend) -> list[DeadLetter]:
    """Return the dead letters of group ``g``, the oldest first."""
    topic = dead_letter_topic("g")
    if topic not in backend.topics.names():
        return []
    return [DeadLetter("g", letter, None) for letter in Reader(backend).tail(topic, start="earliest", follow=False)]


@pytest.mark.guarantee("G22")
def test_a_dead_letter_that_is_stored_and_not_replicated_in_time_is_stored_once(
    store: MessageStore, producer: Producer
) -> None:
    # Given a replica that is in sync, and says nothing
    producer.send(Message("orders", b"1"))
    store.log_sending.configure(Replication(Sync.MEMORY, OnLost.REFUSE, timeout_ms=100))
    store.log_sending.say(store.state.published_to, boottime() + 60_000_000_000)
    app, attempts = App(NOWHERE), list[int]()

    @app.handler("orders", group="g", retry=RetryPolicy(max_retries=0))
    def handle(message: ReceivedMessage) -> None:
        attempts.append(message.delivery_attempt)
        raise ValueError("no")

    # When the message becomes a dead letter
    with consuming(store, app):
        wait_for(lambda: all(each.lag == 0 for each in Admin(store).lag("g")) and attempts, "it is a dead letter")

    # Then it is one
    (queue,) = store.topics.queues(dead_letter_topic("g"))
    assert (store.topics.max_offset(queue), attempts) == (1, [1])
