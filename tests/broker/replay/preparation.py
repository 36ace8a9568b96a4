"""Preparation: topics and messages that a broker had before a session, as far as the session shows them.

A topic was there if the first question for its route was answered, or if a group had an offset in it. A queue had as
many messages as the first answer about it says: the offset of a message that was sent, or the end that a pull was told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rmqclient import RetentionConfig, StoreConfig, TransactionConfig
from rmqclient.remoting.bodies import GroupList
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame, FrameReader, encode
from rmqclient.store import Message, MessageStore, ReceivedMessage
from tests.broker.replay.comparison import records_of
from tests.broker.replay.connections import Connections
from tests.remoting.recordings import Closed, RecordedFrame

_SENDS = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
_PULLS = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
_ENDS = {RequestCode.GET_MAX_OFFSET}
_OF_A_BROKER = {"TBW102", "DefaultCluster", "broker-a", "BenchmarkTest", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC"}


_TOPIC = re.compile(rb'"topic":"([^"]+)"')
"""Of a queue that is a key of a table, which is no JSON."""

_OURS = -1
"""The connection of the preparation, which no recording has."""

_PATIENCE_S = 30.0

CENTURY_H = 100 * 365 * 24

CONFIG = StoreConfig(
    transactions=TransactionConfig(timeout_ms=4_000, check_interval_ms=500),
    retention=RetentionConfig(file_reserved_hours=CENTURY_H),
)
"""The recorded brokers asked about transactions after two seconds; a busy machine may need more until one is ended.
Recorded messages grow older each day."""


def prepare(store: MessageStore, events: Iterable[RecordedFrame | Closed]) -> None:
    """Make the topics and the messages that were there."""
    topics, ends = shown_before(events := list(events))
    known = messages_shown(events)
    for topic, queue_count in topics.items():
        store.topics.create(topic, queue_count)
    appender = store.appenders.make(store.topics.queues, lambda body: str(body).encode())
    for (topic, queue_id), end in ends.items():
        if topic in topics:
            other = Message(topic, b"earlier")
            key = next(key for key in map(str, range(10_000)) if appender.queue_of(other, key) == queue_id)
            for offset in range(end):
                shown = known.get((topic, queue_id, offset))
                appender.append(other if shown is None else copy_of(shown), key)


def commit_as_shown(connections: Connections, events: Sequence[RecordedFrame | Closed]) -> None:
    """Commit the first offset of each group and topic that an answer shows to have had one before."""
    for number, (group, topic) in enumerate(sorted(groups_shown(events))):
        fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "0"}
        connections.send(_OURS, encode(Frame(RequestCode.UPDATE_CONSUMER_OFFSET, fields=fields, opaque=number)))
        connections.answer(_OURS, number, _PATIENCE_S)
    connections.close(_OURS)


def groups_shown(events: Sequence[RecordedFrame | Closed]) -> set[tuple[str, str]]:
    """Return the groups that had consumed, each with its topic, as the tools were told."""
    found: set[tuple[str, str]] = set()
    for request, answer in answered(events):
        if request.code == RequestCode.QUERY_TOPIC_CONSUME_BY_WHO and answer.body:
            found |= {(group, request.fields["topic"]) for group in GroupList.decode(answer.body).groups}
        elif request.code == RequestCode.GET_CONSUME_STATS:
            found |= {(request.fields["consumerGroup"], topic.decode()) for topic in _TOPIC.findall(answer.body)}
    return found


def messages_shown(events: list[RecordedFrame | Closed]) -> dict[tuple[str, int, int], ReceivedMessage]:
    """Return the messages that any answer shows, by their places."""
    return {
        (message.topic, message.queue_id, message.queue_offset): message
        for event in events
        if isinstance(event, RecordedFrame) and event.is_response and event.request_code in _PULLS and event.body
        for message in records_of(event.body)
    }


def copy_of(message: ReceivedMessage) -> Message:
    """Return a message to send that has the body, the tag and the keys of another one."""
    return Message(message.topic, message.stored_body, tags=message.tags, keys=message.keys)


def shown_before(events: list[RecordedFrame | Closed]) -> tuple[dict[str, int], dict[tuple[str, int], int]]:
    """Return the topics that were there with their numbers of queues, and the ends of their queues."""
    known: dict[str, bool] = {}
    ends: dict[tuple[str, int], int] = {}
    counts: dict[str, int] = {}
    for request, answer in answered(events):
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            known.setdefault(request.fields.get("topic", ""), answer.code == 0)
        if request.code in _PULLS and "maxOffset" in answer.fields:
            place = request.fields["topic"], int(request.fields["queueId"])
            ends.setdefault(place, int(answer.fields["maxOffset"]))
        if answer.code == 0 and (topic := request.fields.get("b") or request.fields.get("topic")):
            if request.code in _SENDS and not _waits(request):
                ends.setdefault((topic, int(answer.fields["queueId"])), int(answer.fields["queueOffset"]))
            elif request.code in _ENDS:
                ends.setdefault((topic, int(request.fields["queueId"])), int(answer.fields["offset"]))
    for _, topic in groups_shown(events):
        known.setdefault(topic, True)
    begun_ms = 1000 * min(event.time_s for event in events if isinstance(event, RecordedFrame))
    for (topic, queue_id, offset), message in messages_shown(events).items():
        if message.born_timestamp >= begun_ms - 1000 and (topic, queue_id) in ends:
            ends[topic, queue_id] = min(ends[topic, queue_id], offset)
    for topic, queue_id in ends:
        counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    topics = {
        topic: 1 if topic.startswith("%RETRY%") else max(4, counts.get(topic, 0))
        for topic, was_there in known.items()
        if was_there
        and topic not in _OF_A_BROKER
        and not topic.lower().startswith(("rmq_sys", "schedule_topic"))
        and not topic.endswith("_REPLY_TOPIC")
    }
    return topics, ends


def answered(events: Sequence[RecordedFrame | Closed]) -> Iterator[tuple[Frame, Frame]]:
    """Return the requests of clients with their answers, in the order of the answers."""
    asked: dict[tuple[int, int], Frame] = {}
    for event in events:
        if isinstance(event, Closed):
            continue
        frame = frame_of(event)
        key = event.connection, frame.opaque
        if event.is_from_client and not frame.is_response:
            asked[key] = frame
        elif not event.is_from_client and frame.is_response and key in asked:
            yield asked.pop(key), frame


def _waits(send: Frame) -> bool:
    """Whether the answer to a send tells its place in a topic of waiting messages."""
    properties = send.fields.get("i") or send.fields.get("properties") or ""
    return "DELAY\x01" in properties or "TRAN_MSG\x01" in properties


def frame_of(event: RecordedFrame) -> Frame:
    """Return a recorded frame as an object."""
    (frame,) = FrameReader().feed(event.raw)
    return frame
