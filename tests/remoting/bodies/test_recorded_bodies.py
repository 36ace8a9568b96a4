"""Every recorded body of real clients, brokers and name servers is read, and written again as it was."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmqclient.remoting import bodies
from rmqclient.remoting.bodies import Body, fastjson
from rmqclient.remoting.errors import BodyError
from rmqclient.remoting.frame import FrameReader
from rmqclient.remoting.table import request_fields
from rmqclient.store import ReceivedMessage
from rmqclient.store.wire import decode_records
from tests.remoting.recordings import BUNDLES, RecordedFrame, recorded_frames
from tests.support.oracle import reference

REQUEST, ANSWER = False, True

CLASSES: dict[tuple[int, bool], type[Body]] = {
    (28, ANSWER): bodies.KVTable,
    (34, REQUEST): bodies.Heartbeat,
    (38, ANSWER): bodies.ConsumerIds,
    (41, REQUEST): bodies.LockRequest,
    (41, ANSWER): bodies.LockedQueues,
    (42, REQUEST): bodies.LockRequest,
    (46, REQUEST): bodies.ClientConfigCheck,
    (103, ANSWER): bodies.KVTable,
    (105, ANSWER): bodies.TopicRoute,
    (106, ANSWER): bodies.ClusterInfo,
    (200, REQUEST): bodies.GroupConfig,
    (202, ANSWER): bodies.TopicStats,
    (203, ANSWER): bodies.ConsumerConnection,
    (204, ANSWER): bodies.ProducerConnection,
    (206, ANSWER): bodies.TopicList,
    (208, ANSWER): bodies.ConsumeStats,
    (220, REQUEST): bodies.ResetOffset,
    (222, ANSWER): bodies.ResetOffset,
    (224, ANSWER): bodies.TopicList,
    (300, ANSWER): bodies.GroupList,
    (304, ANSWER): bodies.TopicList,
    (307, ANSWER): bodies.RunningInfo,
    (309, ANSWER): bodies.DirectResult,
    (315, ANSWER): bodies.BrokerStats,
    (321, ANSWER): bodies.QueueEntries,
    (351, ANSWER): bodies.TopicConfig,
    (400, REQUEST): bodies.AssignmentQuery,
    (400, ANSWER): bodies.Assignments,
    (401, REQUEST): bodies.RequestMode,
}

RECORDS = {(11, ANSWER), (12, ANSWER), (33, ANSWER), (39, REQUEST), (309, REQUEST), (361, ANSWER), (200050, ANSWER)}

OTHERS = {
    (10, REQUEST),  # bodies of messages
    (103, REQUEST),  # what a stock broker tells a name server
    (310, REQUEST),
    (320, REQUEST),
    (325, REQUEST),
    (326, REQUEST),
    (25, REQUEST),  # settings as lines of text
    (319, ANSWER),
    (907, ANSWER),  # of 5.x brokers only: how replicas and cold data are
    (2003, ANSWER),
}

NO_BODIES = {b"{}", b"this is not json"}
"""What a probe sent as a heartbeat."""


def recorded(bundle: str, kinds: set[tuple[int, bool]]) -> Iterator[tuple[RecordedFrame, tuple[int, bool], bytes]]:
    for frame in recorded_frames(bundle):
        kind = (frame.request_code or 0, frame.is_response)
        if frame.body and kind in kinds:
            yield frame, kind, frame.body


@pytest.mark.parametrize("bundle", BUNDLES)
def test_a_body_is_written_as_it_was_read(bundle: str) -> None:
    for frame, kind, body in recorded(bundle, set(CLASSES)):
        if kind == (34, REQUEST) and body in NO_BODIES:
            with pytest.raises(BodyError):
                bodies.Heartbeat.decode(body)
            continue
        read = CLASSES[kind].decode(body)
        written = [read.encode(as_fastjson=False), read.encode(as_fastjson=True)]
        if isinstance(read, bodies.ResetOffset):
            written.append(read.encode_list())
        assert [CLASSES[kind].decode(form) for form in written] == [read] * len(written)
        if frame.header["language"] == "JAVA" and frame.header["version"] != NODE:
            assert body in written, frame
        else:
            assert plain(fastjson.read(body)) == as_in(fastjson.read(body), fastjson.read(written[0])), frame


NODE = 121
"""The version that only the Node client has, which says that it is Java and writes fields in another order."""

ORDINALS = {
    member.name: str(number)
    for kind in (bodies.ConsumeType, bodies.MessageModel, bodies.ConsumeFrom)
    for number, member in enumerate(kind)
}
"""What the C++ client writes for names."""

UNKNOWN = "dropped"
"""A field of the Go client that no Java class reads: there it is called ``droped``."""


def as_in(read: Any, written: Any) -> Any:
    """What was written, as another client writes it: without the fields that this one leaves out."""
    if isinstance(read, dict):
        named = {as_key(name): item for name, item in written.items()}
        return {as_key(name): as_in(item, named[as_key(name)]) for name, item in read.items() if name != UNKNOWN}
    if isinstance(read, list):
        return [as_in(*pair) for pair in zip(read, written, strict=True)]
    return plain(ORDINALS[written] if isinstance(read, int) and written in ORDINALS else written)


def plain(value: Any) -> Any:
    """A value with its fields as keys, its sets as they are, and its numbers as texts: some clients write these so."""
    if isinstance(value, dict):
        return {as_key(name): plain(item) for name, item in value.items() if name != UNKNOWN}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return str(float(value)) if isinstance(value, float) or str(value) == "0" else str(value)


def as_key(name: str) -> str:
    """A key that holds an object, with its fields in one order."""
    return json.dumps(json.loads(name), sort_keys=True) if name.startswith("{") else name


def test_every_recorded_body_has_a_class_or_holds_records_or_a_message() -> None:
    met: Counter[tuple[int, bool]] = Counter()
    for bundle in BUNDLES:
        for frame in recorded_frames(bundle):
            if frame.body and frame.request_code is not None:
                met[frame.request_code, frame.is_response] += 1
    known = set(CLASSES) | RECORDS | OTHERS
    assert (set(met) - known, known - set(met)) == (set(), set())


@pytest.mark.parametrize("bundle", BUNDLES)
def test_records_are_read_as_the_reference_reads_them(bundle: str) -> None:
    for _, _, body in recorded(bundle, RECORDS):
        at = 0
        for message in decode_records(body):
            stands = reference.decode(body, at)
            assert isinstance(stands, reference.ReferenceRecord)
            for name, read in FIELDS.items():
                assert read(message) == getattr(stands, name), name
            assert message.topic == stands.topic
            at += stands.size
        assert at == len(body)


FIELDS: dict[str, Callable[[ReceivedMessage], object]] = {
    "size": lambda message: message.size,
    "queue_id": lambda message: message.queue_id,
    "queue_offset": lambda message: message.queue_offset,
    "commit_log_offset": lambda message: message.commit_log_offset,
    "flag": lambda message: message.flag,
    "sys_flag": lambda message: message.sys_flag,
    "born_timestamp": lambda message: message.born_timestamp,
    "store_timestamp": lambda message: message.store_timestamp,
    "reconsume_times": lambda message: message.reconsume_times,
    "prepared_transaction_offset": lambda message: message.prepared_transaction_offset,
    "body": lambda message: message.stored_body,
    "opened_body": lambda message: message.body,
    "property_map": lambda message: message.properties,
}


def test_a_check_of_a_transaction_names_the_message_as_its_record_does() -> None:
    checked = 0
    for bundle in BUNDLES:
        for recorded_frame, _, body in recorded(bundle, {(39, REQUEST)}):
            (frame,) = FrameReader().feed(recorded_frame.raw)
            fields = request_fields(frame)
            (message,) = decode_records(body)
            assert (message.message_id, message.offset_message_id) == (fields["msgId"], fields["offsetMsgId"])
            assert message.queue_offset == fields["tranStateTableOffset"]
            assert message.commit_log_offset == fields["commitLogOffset"]
            checked += 1
    assert checked
