"""What clients send: requests as Java's clients make them, and what the store then has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from rmqclient.store import MessageQueue, ReceivedMessage
from rmqclient.store.wire import parse_offset_id
from tests.broker.asking import Asking

UNIQ_KEY = "7F00000144FC4E0E2F2A6DF223090002"
ONES: Mapping[str, str] = {"KEYS": "k1 k2", "UNIQ_KEY": UNIQ_KEY, "WAIT": "true", "TAGS": "TagA"}


def text(properties: Mapping[str, str]) -> str:
    """Return properties as clients write them."""
    return "\x02".join(f"{name}\x01{value}" for name, value in properties.items())


def send_of(
    body: bytes = b"hello",
    properties: Mapping[str, str] | str = ONES,
    *,
    code: RequestCode = RequestCode.SEND_MESSAGE_V2,
    **fields: Any,
) -> Frame:
    """Return a request that sends a message to queue 1 of ``orders``, unless ``fields`` say otherwise."""
    given = {
        "producerGroup": "makers",
        "topic": "orders",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 1,
        "sysFlag": 0,
        "bornTimestamp": 1_795_333_100_028,
        "flag": 0,
        "properties": properties if isinstance(properties, str) else text(properties),
        "reconsumeTimes": 0,
        "unitMode": False,
        "batch": False,
        **fields,
    }
    return request(code, body, **given)


def read(client: Asking, answer: Frame) -> ReceivedMessage:
    """Return the message that an answer names."""
    assert answer.code == 0, answer.remark
    return client.broker.store.messages.read(parse_offset_id(answer.fields["msgId"].split(",")[0]).commit_log_offset)


def messages(client: Asking, topic: str) -> list[ReceivedMessage]:
    """Return what a topic has, queue by queue."""
    topics = client.broker.store.topics
    if topic not in topics:
        return []
    return [
        client.broker.store.messages.at(queue, offset)
        for queue in topics.queues(topic)
        for offset in range(topics.min_offset(queue), topics.max_offset(queue))
    ]


def only(client: Asking, topic: str) -> ReceivedMessage:
    """Return the only message of a topic."""
    (found,) = messages(client, topic)
    return found


def queue_of(message: ReceivedMessage) -> MessageQueue:
    """Return where a message stands."""
    return MessageQueue(message.topic, message.queue_id)
