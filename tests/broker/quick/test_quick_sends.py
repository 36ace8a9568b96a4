"""Sends through a server that answers them before they are read: the same as through one that reads each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from rmqclient.broker.address import Address
from rmqclient.errors import QueueError
from rmqclient.remoting.frame import Frame, FrameReader, Serialization, encode
from rmqclient.remoting.table import RequestCode, request, request_fields
from rmqclient.store import Durability, MessageQueue, MessageStore, StoreConfig, open_store
from tests.broker.asking import LOCAL, Asking, AskingPeer, asking
from tests.remoting.recordings import BUNDLES, recorded_frames

REMOTE = Address("10.0.0.9", 40_000)
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
FIELDS: dict[str, Any] = {
    "producerGroup": "shop",
    "topic": "orders",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 1,
    "sysFlag": 0,
    "bornTimestamp": 1_700_000_000_000,
    "flag": 9,
    "properties": "KEYS\x01a b\x02UNIQ_KEY\x010A010203000018B4AAC21D6F3B5C0001\x02WAIT\x01true\x02TAGS\x01paid",
}
PROPERTIES = [
    "",
    "TAGS\x01a",
    "WAIT\x01false\x02A\x01b",
    "A\x01b\x02A\x01c",
    "A\x01\x02B\x01c",
    "DELAY\x013\x02",
    "TIMER_DELAY_MS\x01100000\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01shop",
    "__CRC32#\x010123456789\x02A\x01b",
    "INNER_NUM\x013",
    "CLUSTER\x01other\x02A\x01b",
    "käse\x01brot",
    "A\x01" + "b" * 32_760,
]


@dataclass
class Both:
    """Two brokers over two stores: one answers what it can before it is read, the other one reads everything."""

    quick: Asking
    slow: Asking

    def send(self, frame: Frame) -> bool:
        """Send a frame to both, and compare; return whether it was answered before it was read."""
        raw = encode(frame)
        answers, end = self.quick.broker.quick.take(raw, 0, REMOTE, LOCAL)
        assert end in {0, len(raw)}
        ours = FrameReader().feed(answers) if end else [self.quick.ask_frame(read(raw), AskingPeer())]
        theirs = self.slow.ask_frame(read(raw), AskingPeer())
        assert [plain(each) for each in ours] == [plain(theirs)]
        assert last_record(self.quick.broker.store, frame) == last_record(self.slow.broker.store, frame)
        return end > 0


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    root = tmp_path_factory.mktemp("stores")
    with ExitStack() as stack:
        yield Both(*[stack.enter_context(asking(root / name)) for name in ("quick", "slow")])


def read(raw: bytes) -> Frame:
    (frame,) = FrameReader().feed(raw)
    return frame


def plain(answer: Frame) -> dict[str, Any]:
    """Return an answer without its places in a log: ids that a store makes may differ in length."""
    fields = {name: value for name, value in answer.fields.items() if name not in ("msgId", "recallHandle")}
    return {**asdict(answer), "fields": fields}


def last_record(store: MessageStore, frame: Frame) -> tuple[object, ...] | None:
    """Return what stands at the end of the queue that a frame names, but for times and ids that a store makes."""
    try:
        fields = request_fields(frame)
        queue = MessageQueue(fields["topic"], fields["queueId"])
        end = store.topics.max_offset(queue)
    except QueueError:
        return None
    if end == store.topics.min_offset(queue):
        return None
    message = store.messages.at(queue, end - 1)
    kept = {
        name: value
        for name, value in message.properties.items()
        if not (name == "UNIQ_KEY" and value.startswith("7F000001"))
    }
    code = 0 if "DELAY" in kept else message.tags_code  # of a message that waits, a time
    about = (message.flag, message.sys_flag, message.born_timestamp, message.reconsume_times, code)
    return end, message.stored_body, tuple(kept.items()), about


def send(code: RequestCode = RequestCode.SEND_MESSAGE_V2, body: bytes = b"body", **more: object) -> Frame:
    frame = request(code, body, **{**FIELDS, **more})
    frame.opaque = 77
    return frame


@pytest.mark.parametrize("properties", PROPERTIES)
@pytest.mark.parametrize("code", SENDS)
@pytest.mark.parametrize("serialization", Serialization)
def test_whatever_the_properties_say_both_do_the_same(
    both: Both, properties: str, code: RequestCode, serialization: Serialization
) -> None:
    waits = "DELAY" in properties  # it comes to its topic at a time of its own
    frame = send(code, properties=properties, topic="waiting" if waits else "orders")
    frame.serialization = serialization.value
    both.send(frame)


@pytest.mark.parametrize(
    "more",
    [
        {"queueId": -1, "topic": "single", "defaultTopicQueueNums": 1},
        {"queueId": 4},
        {"queueId": 2**31 - 1},
        {"topic": "no such/topic"},
        {"topic": ""},
        {"topic": "a" * 300},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"},
        {"topic": "rmq_sys_wheel_timer"},
        {"topic": "unknown", "defaultTopic": "none"},
        {"topic": "%RETRY%shop", "reconsumeTimes": 3, "maxReconsumeTimes": 16},
        {"sysFlag": 0x7FFFFFFF},
        {"sysFlag": 0x8},
        {"sysFlag": -1},
        {"flag": -5},
        {"bornTimestamp": -1},
        {"bornTimestamp": 2**63 - 1},
        {"reconsumeTimes": -3},
        {"reconsumeTimes": 7},
        {"body": b""},
        {"body": bytes((4 << 20) + 1)},
    ],
)
@pytest.mark.parametrize("code", SENDS)
def test_whatever_the_fields_say_both_do_the_same(both: Both, more: dict[str, Any], code: RequestCode) -> None:
    both.send(send())
    both.send(send(code, **more))


@pytest.mark.parametrize("bundle", BUNDLES)
def test_recorded_sends_are_answered_the_same(both: Both, bundle: str) -> None:
    frames = [each.raw for each in recorded_frames(bundle) if each.is_from_client and each.request_code in SENDS]
    taken = sum(both.send(frame) for frame in map(read, frames) if is_settled(frame))
    assert taken or bundle in {"pop", "registration", "broker", "mqadmin", "go", "cpp", "node", "probe"}


def is_settled(frame: Frame) -> bool:
    """Whether a recorded send has an answer, and no choice of a queue is left to the broker."""
    return not frame.is_oneway and frame.fields.get("e", frame.fields.get("queueId", "-1")) != "-1"


def test_a_plain_send_is_answered_before_it_is_read(both: Both) -> None:
    both.send(send())
    assert both.send(send())
    before = both.quick.broker.quick.sends.sent
    assert both.send(send())
    assert both.quick.broker.quick.sends.sent == before + 1


def test_a_topic_that_another_process_changes_or_removes_is_looked_at_again(both: Both) -> None:
    topics = both.quick.broker.topics, both.slow.broker.topics
    both.send(send(topic="changing"))
    assert both.send(send(topic="changing", queueId=3))
    for each in topics:
        each.delete("changing")
    assert not both.send(send(topic="changing", defaultTopic="none"))
    assert both.slow.broker.store.topics.max_offset(MessageQueue("changing", 3)) == 1


def test_a_store_that_flushes_each_message_reads_every_send(tmp_path: Path) -> None:
    with asking(tmp_path / "store", StoreConfig(durability=Durability.SYNC)) as client:
        assert client.broker.store.config.durability is Durability.SYNC
        assert not client.broker.quick.sends.is_enabled


def test_a_server_for_reading_reads_every_send(tmp_path: Path) -> None:
    open_store(tmp_path / "store").close()
    with asking(tmp_path / "store", read_only=True) as client:
        assert not client.broker.quick.sends.is_enabled
