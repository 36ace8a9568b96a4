"""What a queue has, and reading it."""

from __future__ import annotations

import threading
import time

import pytest

from rmqclient import MessageQueue, PullConsumer, PullStatus
from rmqclient.backend import Backend
from rmqclient.backend.pull_result import PullResult
from rmqclient.errors import MessageExpired, UnknownTopic
from rmqclient.filters.tag import parse_tags
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response
from tests.support.cluster.keeping_cluster import KeepingCluster

QUEUE = MessageQueue("orders", 0, "broker-b")
ALL = parse_tags("*")


def read(backend: Backend, offset: int, tags: str = "*") -> PullResult:
    return backend.queues.read(QUEUE, offset, 32, parse_tags(tags))


def without_tags(asked: Frame) -> Frame:
    """Make it a pull of every message: a broker may give more than was asked for."""
    asked.fields["subscription"] = "*"
    return asked


def test_the_queues_of_all_brokers_are_the_topics(backend: Backend) -> None:
    assert backend.topics.queues("orders") == [MessageQueue("orders", 0, "broker-a"), QUEUE]
    with pytest.raises(UnknownTopic):
        backend.topics.queues("nothing")


def test_messages_are_read_by_offset_and_tag(kept: KeepingCluster, backend: Backend) -> None:
    for number in range(6):
        kept.put("orders", b"%d" % number, broker="broker-b", TAGS="ab"[number % 2])
    assert backend.queues.span(QUEUE) == (0, 6)
    found = read(backend, 1, "b")
    assert (found.status, found.next_offset) == (PullStatus.FOUND, 6)
    assert [(message.queue, message.queue_offset) for message in found.messages] == [(QUEUE, 1), (QUEUE, 3), (QUEUE, 5)]
    assert read(backend, 6).status is PullStatus.NO_NEW_MESSAGE
    assert backend.queues.message_at(QUEUE, 4).body == b"4"
    with pytest.raises(MessageExpired):
        backend.queues.message_at(QUEUE, 6)


@pytest.mark.parametrize(
    ("code", "following", "status"),
    [
        (ResponseCode.PULL_OFFSET_MOVED, 3, PullStatus.OFFSET_ILLEGAL),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 9, PullStatus.NO_MATCHED_MESSAGE),
        (ResponseCode.PULL_NOT_FOUND, 5, PullStatus.NO_NEW_MESSAGE),
        (ResponseCode.PULL_NOT_FOUND, 8, PullStatus.NO_MATCHED_MESSAGE),
    ],
)
def test_an_answer_without_messages_says_where_to_go_on(
    kept: KeepingCluster, backend: Backend, code: ResponseCode, following: int, status: PullStatus
) -> None:
    kept.cluster.script[RequestCode.PULL_MESSAGE] = lambda asked: response(
        asked, code, nextBeginOffset=following, minOffset=3, maxOffset=9, suggestWhichBrokerId=0
    )
    assert read(backend, 5) == PullResult(status, following, 3, 9)


def test_another_tag_with_the_same_hash_is_not_taken(kept: KeepingCluster, backend: Backend) -> None:
    kept.put("orders", b"Aa", broker="broker-b", TAGS="Aa")
    kept.put("orders", b"BB", broker="broker-b", TAGS="BB")  # the same hash
    pull = kept.cluster.script[RequestCode.PULL_MESSAGE]
    kept.cluster.script[RequestCode.PULL_MESSAGE] = lambda asked: pull(without_tags(asked))
    assert [message.body for message in read(backend, 0, "BB").messages] == [b"BB"]


def test_a_queue_that_no_broker_has_is_unknown_although_brokers_answer(backend: Backend) -> None:
    for queue in (MessageQueue("orders", 7, "broker-b"), MessageQueue("orders", 0), MessageQueue("orders", 0, "c")):
        with pytest.raises(UnknownTopic, match="brokers with queues of it: broker-a, broker-b"):
            backend.queues.span(queue)


def test_an_offset_by_time_is_that_of_the_first_message(kept: KeepingCluster, backend: Backend) -> None:
    times = [kept.put("orders", b"", broker="broker-b").store_timestamp for _ in range(9)]
    # A broker's own search may give an earlier message
    kept.cluster.script[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda asked: response(asked, offset=0)
    for number, timestamp_ms in enumerate(times):
        assert backend.queues.offset_by_time(QUEUE, timestamp_ms) == number
    assert backend.queues.offset_by_time(QUEUE, 0) == 0
    assert backend.queues.offset_by_time(QUEUE, times[-1] + 1) == 9


def test_a_bell_rings_for_a_message_that_came_after_the_last_look(kept: KeepingCluster, backend: Backend) -> None:
    bell = backend.queues.bell()
    heard = bell.arm(QUEUE)
    read(backend, 0)
    kept.put("orders", b"here", broker="broker-b")
    begun = time.monotonic()
    bell.wait(heard, 20)
    assert time.monotonic() - begun < 10
    assert bell.heard() != heard


def test_a_pull_that_waits_is_woken_by_the_broker(kept: KeepingCluster, url: str) -> None:
    with PullConsumer(url, group="reports") as consumer:
        begun = time.monotonic()

        def is_held(asked: Frame) -> bool:
            return bool(request_fields(asked)["suspendTimeoutMillis"])

        def put() -> None:
            while not any(map(is_held, kept.cluster.asked(RequestCode.PULL_MESSAGE))):
                assert time.monotonic() < begun + 20
            kept.put("orders", b"here", broker="broker-b")

        sender = threading.Thread(target=put)
        sender.start()
        assert [message.body for message in consumer.pull(QUEUE, 0, wait=20).messages] == [b"here"]
        sender.join()
    assert time.monotonic() - begun < 10
