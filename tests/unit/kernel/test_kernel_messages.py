"""What a message may be, and what becomes of one that it may not be: refused by name, before a byte is written."""

from __future__ import annotations

import pickle
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqclient import Message, Producer, StoreConfig
from rmqclient.errors import BodyTooLarge, InvalidName, MessageRejected, PropertiesTooLarge, QueueError, TableFull
from rmqclient.store import MessageStore, layout, open_store
from rmqclient.store.kernel._kernel import RESERVED_PROPERTIES, ReceivedMessage, decode
from tests.support.oracle import reference
from tests.support.sweeps import share_of

SMALL = StoreConfig(commit_log_file_bytes=36_864, max_body_bytes=2_048, consume_queue_file_entries=64)
OWN_PROPERTIES = len("UNIQ_KEY") + 1 + 32 + 1 + layout.CRC_PROPERTY_SIZE
"""Bytes of the properties that every record has."""

GOLDEN = Path(__file__).parents[2] / "compat" / "golden" / "store-4.9.8-clean.tgz"
ONE_STORE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def producer(store: MessageStore) -> Iterator[Producer]:
    with Producer(store) as made:
        made.send(Message("t", b"first"))
        yield made


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.guarantee("G9")
def test_a_body_of_4_mib_is_taken_by_default_and_not_a_byte_more(tmp_path: Path) -> None:
    with Producer(tmp_path, config=replace(StoreConfig(), commit_log_file_bytes=8 << 20)) as producer:
        producer.send(Message("t", bytes(4 << 20)))
        with pytest.raises(BodyTooLarge, match=r"4194305.*4194304"):
            producer.send(Message("t", bytes((4 << 20) + 1)))


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize(
    ("own", "fields"),
    [
        pytest.param("TAGS..", lambda size: {"tags": "x" * size}, id="tags"),
        pytest.param("KEYS..", lambda size: {"keys": ["x" * size]}, id="one key"),
        pytest.param("KEYS..", lambda size: {"keys": ["x" * 9, "y" * 9, "z" * (size - 20)]}, id="keys"),
        pytest.param("name..", lambda size: {"properties": {"name": "x" * size}}, id="property"),
        pytest.param("name..", lambda size: {"properties": {"name": "й" * (size // 2) + "x" * (size % 2)}}, id="utf-8"),
        pytest.param("a..1b..", lambda size: {"properties": {"a": "1", "b": "x" * size}}, id="properties"),
        pytest.param("TAGS..xKEYS..yn..", lambda size: {"tags": "x", "keys": ["y"], "properties": {"n": "z" * size}}),
    ],
)
def test_properties_take_exactly_as_much_as_a_message_may_have(
    store: MessageStore, producer: Producer, own: str, fields: Any, more: int
) -> None:
    size = layout.MAX_SENT_PROPERTIES_BYTES - OWN_PROPERTIES - len(own) + more
    before = store.state.published_to
    if more:
        with pytest.raises(PropertiesTooLarge, match="31000"):
            producer.send(Message("t", b"", **fields(size)))
        assert store.state.published_to == before
    else:
        result = producer.send(Message("t", b"", **fields(size)))
        record = reference.decode(store.messages.read(result.commit_log_offset).record(), 0)
        assert isinstance(record, reference.ReferenceRecord)
        assert len(record.properties) + layout.CRC_PROPERTY_SIZE == layout.MAX_SENT_PROPERTIES_BYTES


@pytest.mark.guarantee("G9")
def test_a_sharding_key_counts_as_a_property(producer: Producer) -> None:
    fits = layout.MAX_SENT_PROPERTIES_BYTES - OWN_PROPERTIES - len("__SHARDINGKEY..")
    assert producer.send(Message("t", b""), "x" * fits).queue.topic == "t"
    with pytest.raises(PropertiesTooLarge):
        producer.send(Message("t", b""), "x" * (fits + 1))


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize(
    ("message", "what"),
    [
        (Message("t", b"", keys=["two words"]), "two words"),
        (Message("t", b"", keys=["a\x01b"]), "0x01 or 0x02"),
        (Message("t", b"", tags="a\x02b"), "0x01 or 0x02"),
        (Message("t", b"", properties={"a\x01": "b"}), "0x01 or 0x02"),
        (Message("t", b"", properties={"a": "\x02"}), "0x01 or 0x02"),
        (Message("t", b"", properties={"": "b"}), "empty"),
        (Message("t", b"", properties={"a": ""}), "empty"),
        (Message("t", b"", properties={"a": "\ud800"}), "UTF-8"),
        (Message("t", b"", tags="\udfff"), "UTF-8"),
        (Message("t", b"", keys=["\ud800"]), "UTF-8"),
        *[(Message("t", b"", properties={name: "x"}), name) for name in sorted(RESERVED_PROPERTIES)],
    ],
    ids=repr,
)
def test_what_would_break_the_format_is_refused_by_name(
    store: MessageStore, producer: Producer, message: Message, what: str
) -> None:
    before = store.state.published_to
    with pytest.raises(MessageRejected) as raised:
        producer.send(message)
    assert what in str(raised.value)
    with pytest.raises(MessageRejected):
        producer.send_batch([Message("t", b"good"), message])
    assert store.state.published_to == before


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize(
    "topic", ["", "a b", "a/b", "..", ".", "тема", "x" * 128, "a\0b", "a\nb", "%RETRY%group", "%DLQ%g"]
)
def test_a_topic_outside_the_alphabet_is_refused_and_no_file_is_made(
    tmp_path: Path, store: MessageStore, producer: Producer, topic: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidName):
        producer.send(Message(topic, b""))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("count", [0, -1, 1_025])
def test_a_topic_has_a_sensible_number_of_queues(producer: Producer, count: int) -> None:
    with pytest.raises((ValueError, TableFull), match=str(count) if count < 1 else "1,024"):
        producer.create_topic("another", count)


@pytest.mark.guarantee("G9")
def test_a_batch_for_two_topics_is_refused_as_a_whole(store: MessageStore, producer: Producer) -> None:
    before = store.state.published_to
    with pytest.raises(MessageRejected, match=r"'other'.*'t'"):
        producer.send_batch([Message("t", b""), Message("other", b"")])
    assert store.state.published_to == before


def test_what_is_no_message_is_a_type_error(producer: Producer) -> None:
    with pytest.raises(TypeError):
        producer.send("text")  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        producer.send_batch([Message("t", b""), b"bytes"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        producer.send(Message("t", b"", properties={"number": 1}))  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        producer.send(Message("t", b"", keys=[7]))  # type: ignore[list-item]
    with pytest.raises(ValueError, match="flag"):
        Message("t", b"", flag=2**31)


def test_an_empty_batch_is_nothing(store: MessageStore, producer: Producer) -> None:
    before = store.state.published_to
    assert producer.send_batch([]) == []
    assert store.state.published_to == before


# --- anything at all ------------------------------------------------------------------------------

ANY_TEXT = st.text(max_size=30) | st.sampled_from(
    ["", " ", "\0", "\x01", "a\x02", "\ud800", "\u00a0", "👍", "k" * 40_000]
)
ANY_MESSAGE = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["t", "t", "t", "other", "bad topic", ""]),
        "body": st.binary(max_size=100) | st.sampled_from([bytes(2_048), bytes(2_049)]),
        "tags": st.none() | ANY_TEXT,
        "keys": st.lists(ANY_TEXT, max_size=3),
        "properties": st.none() | st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3),
    }
)
"""What a message is made of, which may be refused when it is made, or when it is sent."""


@ONE_STORE
@given(parts=st.lists(ANY_MESSAGE, min_size=1, max_size=4), sharding_key=st.none() | ANY_TEXT)
@pytest.mark.guarantee("G9")
def test_anything_is_stored_as_it_is_or_refused_with_an_error_of_ours(
    store: MessageStore, producer: Producer, parts: list[dict[str, Any]], sharding_key: str | None
) -> None:
    before = store.state.published_to
    try:
        batch = [Message(**each) for each in parts]
        results = producer.send_batch(batch, sharding_key)
    except (QueueError, UnicodeEncodeError):
        assert store.state.published_to == before
        return
    for message, result in zip(batch, results, strict=True):
        received = store.messages.at(result.queue, result.queue_offset)
        assert (received.topic, received.body) == (message.topic, message.body)
        assert received.tags == (message.tags or None)
        assert received.keys == tuple(key for key in message.keys if key)
        assert {name: received.properties[name] for name in message.properties or {}} == (message.properties or {})
    last = [(result.queue, result.queue_offset) for result in results]
    assert last == [(results[0].queue, results[0].queue_offset + step) for step in range(len(batch))]


@ONE_STORE
@given(keys=st.lists(st.text(min_size=1, max_size=8), max_size=4))
def test_keys_come_back_as_they_were_however_much_they_look_like_spaces(
    store: MessageStore, producer: Producer, keys: list[str]
) -> None:
    try:
        result = producer.send(Message("t", b"", keys=keys))
    except MessageRejected:
        assert any(set(key) & set(" \x01\x02") or not key.isprintable() for key in keys)
        return
    assert store.messages.read(result.commit_log_offset).keys == tuple(keys)


# --- sharding -------------------------------------------------------------------------------------


@settings(max_examples=share_of(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.text(min_size=1, max_size=20), queues=st.integers(1, 8))
def test_a_sharding_key_chooses_the_queue_that_rocketmq_would(producer: Producer, key: str, queues: int) -> None:
    try:
        key.encode()
    except UnicodeEncodeError:
        return
    if "\x01" in key or "\x02" in key:
        return
    producer.create_topic(f"sharded{queues}", queues)
    result = producer.send(Message(f"sharded{queues}", b""), key)
    # SelectMessageQueueByHash: Java's remainder has the sign of the hash.
    assert result.queue.queue_id == abs(reference.java_hash(key)) % queues


def test_the_smallest_hash_there_is_chooses_a_queue(producer: Producer) -> None:
    key = "polygenelubricants"  # its hash is -2**31, whose absolute value Java's int cannot hold
    assert reference.java_hash(key) == -(2**31)
    producer.create_topic("three", 3)
    assert producer.send(Message("three", b""), key).queue.queue_id == 2**31 % 3


def test_without_a_key_the_queues_take_turns(producer: Producer) -> None:
    producer.create_topic("turns", 4)
    queues = [producer.send(Message("turns", b"")).queue.queue_id for _ in range(8)]
    assert queues[:4] == queues[4:]
    assert sorted(queues[:4]) == [0, 1, 2, 3]


# --- what comes back ------------------------------------------------------------------------------


@pytest.mark.guarantee("G10")
def test_every_field_of_a_brokers_record_is_read_as_the_reference_codec_reads_it(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    kinds = set()
    for offset, expected in reference.read_commit_log(root):
        found = decode(log, offset, offset)
        assert isinstance(found, ReceivedMessage)
        kinds.add(expected.sys_flag & 0x30)
        for name in ("topic", "body", "queue_id", "flag", "queue_offset", "commit_log_offset", "sys_flag", "size"):
            assert getattr(found, name) == getattr(expected, name), name
        assert found.born_timestamp == expected.born_timestamp
        assert found.store_timestamp == expected.store_timestamp
        assert found.delivery_attempt == expected.reconsume_times + 1
        assert found.properties == expected.property_map
        assert found.tags_code == expected.entry_code
        host = reference.offset_message_id(expected.store_host, expected.store_port, offset)
        assert found.offset_message_id == host
    assert kinds == {0x00, 0x10, 0x30} or len(kinds) > 1


def test_messages_and_results_can_be_pickled(store: MessageStore, producer: Producer) -> None:
    message = Message("t", b"body", tags="tag", keys=["key"], properties={"name": "value"}, flag=7)
    result = producer.send(message)
    received = store.messages.at(result.queue, result.queue_offset)
    assert pickle.loads(pickle.dumps(message)) == message
    assert pickle.loads(pickle.dumps(result)) == result
    assert pickle.loads(pickle.dumps(received)).record() == received.record()
    assert received.redelivered().delivery_attempt == 2


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "ab", "b", "__CRC32", "TAGS"]), st.text("x\u00e41=", max_size=3)), max_size=6
    )
)
def test_some_properties_are_those_that_all_properties_have(pairs: list[tuple[str, str]]) -> None:
    # Given a record with properties of which some have one name, or no value
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs)
    record = reference.encode(reference.ReferenceRecord(topic="t", body=b"", properties=text.encode()))
    message = decode(record, 0, 0)
    assert isinstance(message, ReceivedMessage)

    # Then those that are asked for are found as in the whole
    names = ("a", "b", "TAGS", "none")
    expected = {name: message.properties[name] for name in names if name in message.properties}
    assert message.some_properties(tuple(name.encode() for name in names)) == expected
