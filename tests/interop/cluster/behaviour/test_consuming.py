"""What a handler is promised, at every place."""

from __future__ import annotations

import datetime
import itertools
import threading
import time
from collections import defaultdict
from typing import Any

import pytest

from rmqclient import (
    App,
    Batch,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    ReceivedMessage,
    RetryPolicy,
    jmespath,
    sql,
)
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.handler import Start
from tests.interop.cluster.behaviour.place import CLUSTERS, LONG_S, SERVE, Place, eventually, nothing_more

SOON = (1, 1)
"""Delay levels of a second."""


def test_only_the_wanted_tags_are_delivered(place: Place) -> None:
    topic, seen, app = place.topic("Tags"), [], App(place.address)

    @app.handler(topic, group=place.name("g"), tags="paid || refunded")
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    for number, tag in enumerate(["paid", "open", "refunded", None, "paid"]):
        place.send(topic, b"%d" % number, tags=tag)
    with place.running(app):
        eventually(lambda: len(seen) == 3, "the wanted messages")
        nothing_more(seen)
    assert sorted(seen) == [b"0", b"2", b"4"]


@pytest.mark.parametrize("kind", ["plain", "sql", "ordered", "coroutine"])
def test_handlers_wait_for_a_topic_that_does_not_exist_yet(place: Place, kind: str) -> None:
    topic, seen, app = place.name(f"Later-{kind}"), list[bytes](), App(place.address)
    kinds: dict[str, dict[str, Any]] = {"sql": {"filter": sql("n > 0")}, "ordered": {"order": "queue"}}
    options = kinds.get(kind, {})

    def note(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async def note_later(message: ReceivedMessage) -> None:
        seen.append(message.body)

    app.handler(topic, group=place.name("g"), **options)(note_later if kind == "coroutine" else note)
    with place.running(app):
        nothing_more(seen)
        place.send(topic, b"1", b"2", properties={"n": "1"})
        eventually(lambda: len(seen) >= 2, "what was sent later", 2 * LONG_S)
    assert sorted(seen) == [b"1", b"2"]


def test_tags_of_one_hash_are_told_apart(place: Place) -> None:
    topic, seen, app = place.topic("Hash"), [], App(place.address)

    @app.handler(topic, group=place.name("g"), tags="Aa")
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.tags)

    for tag in ("BB", "Aa", "BB"):  # Java's hash of both is 2112
        place.send(topic, b"x", tags=tag)
    with place.running(app):
        eventually(lambda: seen, "the wanted message")
        nothing_more(seen)
    assert seen == ["Aa"]


def test_sql92_chooses_by_properties(place: Place) -> None:
    topic, seen, app = place.topic("Sql"), [], App(place.address)

    @app.handler(topic, group=place.name("g"), filter=sql("price > 10 AND colour IN ('red', 'blue')"))
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    wanted = {"price": "11", "colour": "red"}
    for number, properties in enumerate(
        [wanted, {**wanted, "price": "9"}, {"price": "12"}, {**wanted, "colour": "blue"}]
    ):
        place.send(topic, b"%d" % number, properties=properties)
    with place.running(app):
        eventually(lambda: len(seen) == 2, "the wanted messages")
        nothing_more(seen)
    assert sorted(seen) == [b"0", b"3"]


def test_jmespath_chooses_by_the_body(place: Place) -> None:
    topic, seen, app = place.topic("Json"), [], App(place.address)

    @app.handler(topic, group=place.name("g"), filter=jmespath("total > `10`"), tags="order")
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    place.send(topic, b'{"total": 9}', b'{"total": 11}', b"no json", tags="order")
    with place.running(app):
        eventually(lambda: seen, "the wanted message")
        nothing_more(seen)
    assert seen == [b'{"total": 11}']


def test_a_failed_message_comes_again_until_it_is_handled(place: Place) -> None:
    topic, calls, app = place.topic("Retry"), [], App(place.address)

    @app.handler(topic, group=place.name("g"), retry=RetryPolicy(delay_levels=SOON))
    def handle(message: ReceivedMessage) -> None:
        calls.append((message.delivery_attempt, message.body, message.topic, message.message_id, time.time()))
        if message.body == b"hard" and message.delivery_attempt < 3:
            raise RuntimeError("not yet")

    hard, _ = place.send(topic, b"hard", b"easy", tags="t", keys=["k"])
    with place.running(app):
        eventually(lambda: len(calls) == 4, "three attempts of the one, and one of the other")
        nothing_more(calls, for_s=2.0)
    tried = [call for call in calls if call[1] == b"hard"]
    assert [call[0] for call in tried] == [1, 2, 3]
    assert {call[2] for call in tried} == {topic}
    assert {call[3] for call in tried} == {hard.message_id}
    assert all(later[4] - earlier[4] > 0.9 for earlier, later in itertools.pairwise(tried))


def test_delays_of_the_policy_are_kept(place: Place) -> None:
    topic, times, app = place.topic("Delays"), [], App(place.address)

    @app.handler(topic, group=place.name("g"), retry=RetryPolicy(delays=(2.0,), max_retries=2))
    def handle(message: ReceivedMessage) -> None:
        times.append(time.time())
        if message.delivery_attempt == 1:
            raise RuntimeError("not yet")

    place.send(topic, b"x")
    with place.running(app):
        eventually(lambda: len(times) == 2, "the second attempt")
    place.differs(SERVE, *CLUSTERS, because="a retry delay becomes the next longer delay level")
    assert times[1] - times[0] > 1.9


def test_the_last_attempt_makes_a_dead_letter(place: Place) -> None:
    topic, group, calls, app = place.topic("Dead"), place.name("g"), [], App(place.address)

    retry = RetryPolicy(max_retries=1, delay_levels=SOON[:1], dead_letter_on=(KeyError,))

    @app.handler(topic, group=group, retry=retry)
    def handle(message: ReceivedMessage) -> None:
        calls.append((message.body, message.delivery_attempt))
        raise KeyError if message.body == b"at once" else RuntimeError("never")

    place.send(topic, b"at once", b"twice", keys=["k"])
    with place.running(app):
        eventually(lambda: len(calls) == 3, "every attempt")
        eventually(lambda: len(place.stored_if_known(f"%DLQ%{group}")) == 2, "the dead letters")
        nothing_more(calls, for_s=2.0)
    assert sorted(calls) == [(b"at once", 1), (b"twice", 1), (b"twice", 2)]
    letters = place.stored(f"%DLQ%{group}")
    assert sorted(letter.body for letter in letters) == [b"at once", b"twice"]
    assert {letter.keys for letter in letters} == {("k",)}


def test_the_messages_of_a_queue_keep_their_order_through_failures(place: Place) -> None:
    topic, calls, app = place.topic("Order"), defaultdict(list), App(place.address)
    failures: defaultdict[bytes, int] = defaultdict(int)

    @app.handler(topic, group=place.name("g"), order="queue", threads=4)
    def handle(message: ReceivedMessage) -> None:
        calls[message.queue].append((message.queue_offset, message.delivery_attempt))
        if message.queue_offset in (3, 4) and failures[message.body] < 2:
            failures[message.body] += 1
            raise RuntimeError("not yet")

    with Producer(place.address) as producer:
        for number in range(80):
            producer.send(Message(topic, b"%d" % number), f"key {number % 16}")
    lengths = _lengths(place, topic)
    with place.running(app):
        eventually(lambda: sum(failures.values()) + 80 == sum(map(len, calls.values())), "every message")
    for queue, length in lengths.items():
        assert [offset for offset, _ in calls[queue]] == [
            offset for offset in range(length) for _ in range(3 if offset in (3, 4) else 1)
        ]
        assert [attempt for offset, attempt in calls[queue] if offset in (3, 4)] == [1, 2, 3] * len(
            [offset for offset in (3, 4) if offset < length]
        )


def _lengths(place: Place, topic: str) -> dict[MessageQueue, int]:
    with PullConsumer(place.address, group=place.name("onlooker")) as consumer:
        return {queue: consumer.max_offset(queue) for queue in consumer.queues(topic)}


def test_the_messages_of_a_key_keep_their_order_and_other_keys_go_on(place: Place) -> None:
    topic, calls, app = place.topic("Keys", 1), [], App(place.address)
    others_are_done = threading.Event()

    @app.handler(topic, group=place.name("g"), order="key", threads=4)
    def handle(message: ReceivedMessage) -> None:
        calls.append((message.sharding_key, message.body))
        if message.body == b"0" and message.sharding_key == "held" and not others_are_done.is_set():
            raise RuntimeError("not yet")

    with Producer(place.address) as producer:
        for number in range(10):
            for key in ("held", "a", "b"):
                producer.send(Message(topic, b"%d" % number), key)
    with place.running(app):
        eventually(lambda: sum(key != "held" for key, _ in calls) == 20, "the messages of the other keys")
        assert {body for key, body in calls if key == "held"} == {b"0"}
        others_are_done.set()
        eventually(lambda: ("held", b"9") in calls, "the messages of the held key")
    for key in ("held", "a", "b"):
        mine = [body for found, body in calls if found == key]
        assert list(dict.fromkeys(mine)) == [b"%d" % number for number in range(10)]
        assert len(mine) == 10 or key == "held"


def test_every_member_of_a_broadcast_group_gets_every_message(place: Place) -> None:
    topic, seen = place.topic("Broadcast"), defaultdict(list)

    def application(member: str) -> App:
        app = App(place.address)

        @app.handler(topic, group=place.name("g"), broadcast=True)
        def handle(message: ReceivedMessage) -> None:
            seen[member].append(message.body)

        return app

    first, second = (place.running(application(name), member_name=place.name(name)) for name in ("one", "two"))
    with first, second:
        place.send(topic, *(b"%d" % number for number in range(20)))
        eventually(lambda: sum(map(len, seen.values())) == 40, "every message at both members")
    for bodies in seen.values():
        assert sorted(bodies, key=int) == [b"%d" % number for number in range(20)]
    place.send(topic, b"while it was away")
    with place.running(application("one"), member_name=place.name("one")):
        eventually(lambda: len(seen["one"]) == 21, "what came while it was away")
        nothing_more(seen["one"])
    assert seen["one"][-1] == b"while it was away"


def test_a_new_group_starts_where_it_is_told_to(place: Place) -> None:
    topic = place.topic("Start")
    seen: defaultdict[str, list[bytes]] = defaultdict(list)
    place.send(topic, *[b"old"] * 8)
    time.sleep(1.1)  # a broker finds a time to the second
    between = datetime.datetime.now(datetime.UTC)
    place.send(topic, *[b"middle"] * 8)

    def application(group: str, start: Start) -> App:
        app = App(place.address)

        @app.handler(topic, group=place.name(group), start=start)
        def handle(message: ReceivedMessage) -> None:
            seen[group].append(message.body)

        return app

    with (
        place.running(application("all", "earliest")),
        place.running(application("none", "latest")),
        place.running(application("some", between)),
    ):
        place.send(topic, *[b"new"] * 8)
        eventually(lambda: len(seen["all"]) == 24 and len(seen["some"]) == 16 and len(seen["none"]) == 8, "all")
        nothing_more(list(itertools.chain(*seen.values())))
    assert {name: sorted(set(bodies)) for name, bodies in seen.items()} == {
        "all": [b"middle", b"new", b"old"],
        "some": [b"middle", b"new"],
        "none": [b"new"],
    }


def test_a_batch_handler_gets_lists_of_one_queue(place: Place) -> None:
    topic, calls, app = place.topic("Batches"), [], App(place.address)

    @app.handler(topic, group=place.name("g"), batch=Batch(10, linger=0.2))
    def handle(messages: list[ReceivedMessage]) -> None:
        calls.append(messages)

    place.send(topic, *(b"%d" % number for number in range(60)))
    with place.running(app):
        eventually(lambda: sum(map(len, calls)) == 60, "every message")
        nothing_more(calls)
    assert max(map(len, calls)) > 1
    assert all(len(call) <= 10 and len({message.queue for message in call}) == 1 for call in calls)


def test_threads_handle_messages_side_by_side(place: Place) -> None:
    topic, app, together, handled = place.topic("Side"), App(place.address), threading.Barrier(4), []

    @app.handler(topic, group=place.name("g"), threads=4)
    def handle(message: ReceivedMessage) -> None:
        together.wait(LONG_S)
        handled.append(message.body)

    place.send(topic, *(b"%d" % number for number in range(4)))
    with place.running(app):
        eventually(lambda: len(handled) == 4, "four handlers met")


def test_members_share_the_queues_and_hand_them_over(place: Place) -> None:
    topic, seen = place.topic("Shared", 4), defaultdict(list)

    def application(member: str) -> App:
        app = App(place.address)

        @app.handler(topic, group=place.name("g"))
        def handle(message: ReceivedMessage) -> None:
            seen[member].append(message.body)

        return app

    with place.running(application("one")) as one:
        with place.running(application("two")) as two:
            eventually(lambda: _held(one) and _held(two) and not _held(one) & _held(two), "each has queues of its own")
            eventually(lambda: len(_held(one) | _held(two)) == len(_queues(place, topic)), "every queue has a member")
            place.send(topic, *(b"%d" % number for number in range(40)))
            eventually(lambda: sum(map(len, seen.values())) == 40, "every message")
            assert seen["one"]
            assert seen["two"]
        eventually(lambda: len(_held(one)) == len(_queues(place, topic)), "the queues of the one that left")
        place.send(topic, *(b"%d" % number for number in range(40, 60)))
        eventually(lambda: sum(map(len, seen.values())) == 60, "every message")
    assert sorted(seen["one"] + seen["two"], key=int) == [b"%d" % number for number in range(60)]


def _held(consumer: PushConsumer) -> set[MessageQueue]:
    return {queue for queues in consumer.queues.values() for queue in queues}


def _queues(place: Place, topic: str) -> list[MessageQueue]:
    with PullConsumer(place.address, group=place.name("onlooker")) as consumer:
        return consumer.queues(topic)


def test_a_group_goes_on_where_it_was(place: Place) -> None:
    topic, seen = place.topic("Again"), []

    def application() -> App:
        app = App(place.address)

        @app.handler(topic, group=place.name("g"))
        def handle(message: ReceivedMessage) -> None:
            seen.append(message.body)

        return app

    for round_number in range(3):
        place.send(topic, *(b"%d" % number for number in range(10 * round_number, 10 * round_number + 10)))
        with place.running(application()):
            eventually(lambda: len(seen) == 10 * round_number + 10, "the new messages")  # noqa: B023
            nothing_more(seen)
    assert sorted(seen, key=int) == [b"%d" % number for number in range(30)]
