"""Sends that the kernel answers: the same records and the same answers as by way of Python, or no answer at all."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqclient.broker.quick.sends import TAIL, plain_sends
from rmqclient.codecs import encode_body
from rmqclient.remoting.codes import Language
from rmqclient.remoting.errors import RemotingError
from rmqclient.remoting.frame import ONEWAY, Frame, FrameReader, Serialization, encode
from rmqclient.remoting.table import RequestCode, request, request_fields, response
from rmqclient.store import MessageQueue, MessageStore, open_store
from rmqclient.store.kernel._kernel import Appender, PlainSends
from rmqclient.store.settings.topic_table import TopicTable
from tests.remoting.recordings import BUNDLES, recorded_frames
from tests.support.sweeps import share_of

CLIENT = bytes((10, 1, 2, 3)) + (5_000).to_bytes(4, "big")
SERVER = bytes((192, 168, 0, 7)) + (9_876).to_bytes(4, "big")
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
QUEUES = 16
SPECIAL = (
    "DELAY",
    "TIMER_",
    "TRAN_MSG",
    "REPLY_TO_CLIENT",
    "__CRC32#",
    "INNER_",
    "CLUSTER",
    "RETRY_TOPIC",
    "REAL_",
    *TAIL,
)
FIELDS: dict[str, Any] = {
    "producerGroup": "shop",
    "topic": "orders",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 3,
    "sysFlag": 0,
    "bornTimestamp": 1_700_000_000_000,
    "flag": 9,
    "properties": 'KEYS\x01käse "7"\\\x02UNIQ_KEY\x010A010203000018B4AAC21D6F3B5C0001\x02WAIT\x01true\x02TAGS\x01paid',
    "reconsumeTimes": 0,
    "unitMode": False,
    "maxReconsumeTimes": 0,
    "batch": False,
}


class Served:
    """A store, and what answers plain sends to it; every topic that may be one is made when it is asked about."""

    def __init__(self, root: Path) -> None:
        self.store = open_store(root, housekeeping=False)
        self.asked: list[str] = []
        self.appender: Appender = self.store.appenders.make(self.store.topics.queues, encode_body, prepare=False)
        self.sends: PlainSends = plain_sends(self.store, self.appender, self.queues_of, "DefaultCluster")

    def queues_of(self, topic: str) -> int:
        self.asked.append(topic)
        if not topic or topic.startswith(("%", "RMQ_", "SCHEDULE", "rmq_")) or "?" in topic or not topic.isascii():
            return 0
        try:
            known = topic in self.store.topics
            return len(self.store.topics.queues(topic) if known else self.store.topics.create(topic, QUEUES))
        except ValueError:
            return 0

    def take(self, data: bytes, at: int = 0) -> tuple[bytes, int]:
        return self.sends.take(data, at, CLIENT, SERVER)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("store") / "store")
    with made.store:
        yield made


def send(
    code: RequestCode = RequestCode.SEND_MESSAGE_V2,
    body: bytes = b"body",
    opaque: int = 5,
    flag: int = 0,
    **more: object,
) -> Frame:
    frame = request(code, body, **{**FIELDS, **more})
    frame.opaque, frame.flag = opaque, flag
    return frame


def binary(frame: Frame) -> Frame:
    frame.serialization = Serialization.ROCKETMQ.value
    return frame


def read(data: bytes) -> Frame:
    (frame,) = FrameReader().feed(data)
    return frame


def check(store: MessageStore, frame: Frame, answer: bytes) -> None:
    """Compare the record and the answer of a plain send with what the table says that its frame means."""
    fields = request_fields(frame)
    queue = MessageQueue(fields["topic"], fields["queueId"])
    message = store.messages.at(queue, store.topics.max_offset(queue) - 1)
    properties = dict(pair.split("\x01", 1) for pair in fields.get("properties", "").split("\x02") if pair)
    properties.pop("WAIT", None)
    expected = {**properties, "CLUSTER": "DefaultCluster", **TAIL}
    expected.setdefault("UNIQ_KEY", message.message_id)
    assert list(message.properties.items()) == list(expected.items())
    assert (message.stored_body, message.flag) == (frame.body, fields["flag"])
    assert message.born_timestamp == fields["bornTimestamp"]
    assert message.reconsume_times == max(0, fields.get("reconsumeTimes", 0))
    assert message.sys_flag == fields["sysFlag"] & 0x703
    wanted = response(
        frame, msgId=message.offset_message_id, queueId=queue.queue_id, queueOffset=message.queue_offset, **TAIL
    )
    assert answer == (b"" if frame.is_oneway else encode(wanted))
    assert message.offset_message_id.startswith(SERVER.hex().upper())


# --- what is taken --------------------------------------------------------------------------------


@pytest.mark.parametrize("code", SENDS)
@pytest.mark.parametrize("opaque", [0, 5, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("is_binary", [False, True])
def test_a_plain_send_is_stored_and_answered(served: Served, code: RequestCode, opaque: int, is_binary: bool) -> None:
    frame = binary(send(code, opaque=opaque)) if is_binary else send(code, opaque=opaque)
    data = encode(frame)
    before = served.sends.sent
    answer, end = served.take(data)
    assert (end, served.sends.sent) == (len(data), before + 1)
    check(served.store, frame, answer)


def test_a_client_that_wants_no_answer_gets_none(served: Served) -> None:
    frame = send(flag=ONEWAY)
    answer, _ = served.take(encode(frame))
    check(served.store, frame, answer)


@pytest.mark.parametrize(
    "more",
    [
        {"properties": ""},
        {"properties": None},
        {"properties": "TAGS\x01a\x02"},
        {"properties": "WAIT\x01false"},
        {"properties": "A\x01b\x02WAIT\x01true\x02"},
        {"sysFlag": 0x301, "body": b"packed"},
        {"reconsumeTimes": 3},
        {"reconsumeTimes": -3},
        {"body": b""},
        {"body": bytes(100_000)},
        {"reconsumeTimes": None, "unitMode": None, "maxReconsumeTimes": None, "batch": None},
    ],
)
@pytest.mark.parametrize("is_binary", [False, True])
def test_ordinary_values_are_taken(served: Served, more: dict[str, Any], is_binary: bool) -> None:
    frame = binary(send(**more)) if is_binary else send(**more)
    answer, end = served.take(encode(frame))
    assert end
    check(served.store, frame, answer)


def test_frames_are_taken_up_to_the_first_that_is_none(served: Served) -> None:
    plain = encode(send())
    other = encode(request(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0))
    data = plain * 3 + other + plain
    answers, end = served.take(data)
    assert end == 3 * len(plain)
    assert [frame.code for frame in FrameReader().feed(answers)] == [0, 0, 0]
    assert served.take(data, end) == (b"", end)
    answers, end = served.take(data, end + len(other))
    assert (len(FrameReader().feed(answers)), end) == (1, len(data))


def test_half_a_frame_is_left_where_it_is(served: Served) -> None:
    data = encode(send())
    before = served.sends.sent
    for size in range(len(data)):
        assert served.take(data[:size]) == (b"", 0)
    assert served.sends.sent == before


# --- what is left to Python -----------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("place", ["{}x\x01y", "A\x01b\x02{}\x01y\x02", "A\x01b\x02{}\x011"])
def test_a_property_that_changes_what_happens_is_left(served: Served, name: str, place: str) -> None:
    assert served.take(encode(send(properties=place.format(name)))) == (b"", 0)


@pytest.mark.parametrize(
    "more",
    [
        {"topic": "%RETRY%shop"},
        {"topic": "no?topic"},
        {"topic": ""},
        {"queueId": -1},
        {"queueId": QUEUES},
        {"batch": True},
        {"body": bytes((4 << 20) + 1)},
        {"properties": "A\x01b\x02A\x01c"},
        {"properties": "A\x01"},
        {"properties": "\x01b"},
        {"properties": "A"},
        {"properties": "A\x01b\x02\x02C\x01d"},
        {"properties": "A\x01" + "b" * 33_000},
        {"properties": "\x02".join(f"name{n}\x01b" for n in range(33))},
        {"flag": RequestCode.SEND_MESSAGE},
    ],
)
def test_whatever_needs_a_thought_is_left(served: Served, more: dict[str, Any]) -> None:
    if "flag" in more:
        frame, more = send(flag=1), {}
    else:
        frame = send(**more)
    before = served.store.state.published_to
    assert served.take(encode(frame)) == (b"", 0)
    assert served.store.state.published_to == before


@pytest.mark.parametrize("written", ['"e":3', '"e":"3"'])
@pytest.mark.parametrize("truth", ["false", '"false"', '"0"'])
@pytest.mark.parametrize("end", ["", "\n"])
def test_json_of_other_languages_is_read(served: Served, written: str, truth: str, end: str) -> None:
    header = encode(send(body=b""))[8:].decode().replace('"e":"3"', written).replace('"m":"false"', f'"m":{truth}')
    raw = (header + end).encode()
    data = struct.pack(">ii", 4 + len(raw), len(raw)) + raw
    answer, taken_to = served.take(data)
    assert taken_to == len(data)
    check(served.store, read(data), answer)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{}",
        b"[]",
        b'{"code":310}',
        b'{"code":310,"extFields":{}}',
        b'{"code":310,"code":310}',
        b'{"code":0310}',
        b'{"code":310.0,"opaque":1}',
        b'{"code":99999999999999999999}',
        b'{"code": 310}',
        b'{"code":310,"extFields":null}',
        b'{"code":310,"remark":null}',
        b'{"code":310,"remark":"\xff"}',
        b'{"code":310,"remark":"\\ud83d\\ude00"}',
        b'{"code":310,"remark":"\\',
        b'{"code":310,"remark":"\\u00',
        b'{"code":310,"remark":"',
        b'{"code":310,',
        b'{"code":-',
        b'{"code":310,"extFields":{"a":tru',
        b'{"code":310,"extFields":{"a":nul}}',
        b'{"code":310}\n\n',
        b'{"code":true}',
        b'{"code":310}x',
    ],
)
def test_an_unusual_header_is_left(served: Served, header: bytes) -> None:
    frame = struct.pack(">ii", 4 + len(header), len(header)) + header
    assert served.take(frame) == (b"", 0)


def test_nothing_is_taken_while_it_is_switched_off(served: Served) -> None:
    served.sends.is_enabled = False
    try:
        assert served.take(encode(send())) == (b"", 0)
    finally:
        served.sends.is_enabled = True


def test_a_topic_is_asked_about_again_after_a_change(served: Served) -> None:
    for _ in range(2):  # the first question may make the topic, and that is a change
        served.take(encode(send()))
    served.asked.clear()
    served.take(encode(send()))
    assert served.asked == []
    table: TopicTable = served.store.topics
    table.create("another", 1)
    served.take(encode(send()))
    assert served.asked == ["orders"]


# --- all that was recorded, and much that was not ------------------------------------------------


@pytest.mark.parametrize("bundle", BUNDLES)
def test_recorded_sends_mean_the_same_to_the_kernel(served: Served, bundle: str) -> None:
    frames = [each.raw for each in recorded_frames(bundle) if each.is_from_client and not each.is_response]
    taken = 0
    for raw in frames:
        frame = read(raw)
        answer, end = served.take(raw)
        assert end in {0, len(raw)}
        if end:
            taken += 1
            check(served.store, frame, answer)
        else:
            assert frame.code not in SENDS or is_special(frame), frame
    assert taken or not any(read(raw).code in SENDS and not is_special(read(raw)) for raw in frames)


def is_special(frame: Frame) -> bool:
    """Whether somebody has to think about a recorded send."""
    properties = frame.fields.get("i", frame.fields.get("properties", ""))
    topic = frame.fields.get("b", frame.fields.get("topic", ""))
    names = [pair.partition("\x01")[0] for pair in properties.split("\x02")]
    try:
        queue_id = request_fields(frame)["queueId"]
    except RemotingError:
        return True
    return (
        frame.language == Language.PYTHON  # the probe's JSON has spaces
        or any(name.startswith(SPECIAL) for name in names)
        or topic.startswith(("%", "RMQ_", "SCHEDULE"))
        or not topic.replace("_", "").replace("-", "").isalnum()
        or not 0 <= queue_id < QUEUES
        or len(properties) > 32_000
        or len(frame.body) > 4 << 20
    )


@given(data=st.data(), is_binary=st.booleans(), code=st.sampled_from(SENDS))
@settings(max_examples=share_of(1_000), deadline=None)
def test_a_mutated_frame_is_left_or_means_the_same(
    served: Served, data: st.DataObject, is_binary: bool, code: RequestCode
) -> None:
    raw = bytearray(encode(binary(send(code)) if is_binary else send(code)))
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["change", "cut", "insert", "copy"]))
        at = data.draw(st.integers(4, len(raw) - 1))
        if kind == "change":
            raw[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del raw[at : at + data.draw(st.integers(1, 8))]
        elif kind == "insert":
            raw[at:at] = data.draw(st.binary(min_size=1, max_size=8))
        else:
            raw[at:at] = raw[at : at + data.draw(st.integers(1, 40))]
        if len(raw) < 8:
            break
    struct.pack_into(">i", raw, 0, max(len(raw) - 4, 4))
    compare(served, bytes(raw))


def test_thousands_of_random_changes_are_left_or_mean_the_same(served: Served) -> None:
    source = random.Random(7)
    frames = [encode(send()), encode(send(RequestCode.SEND_MESSAGE)), encode(binary(send()))]
    for _ in range(3_000):
        raw = bytearray(source.choice(frames))
        for _ in range(source.choice((1, 1, 2))):
            raw[source.randrange(4, len(raw))] = source.choice((source.randrange(256), 34, 44, 92, 125, 1, 2, 48))
        compare(served, bytes(raw))


def compare(served: Served, raw: bytes) -> None:
    """Let the kernel look at a frame; what it took must be a send that Python reads, too, with the same result."""
    answer, end = served.take(raw)
    assert end in {0, len(raw)}
    if end:
        check(served.store, read(raw), answer)
