"""The format of a batch that is one record, against a codec of its own, whole and damaged."""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rmqclient.store import Appender, Message, MessageStore, ReceivedMessage, SendResult, StoreConfig, open_store
from rmqclient.store.bodies import Compression, compress
from rmqclient.store.errors import BatchTooLarge, BodyTooLarge, BodyUnreadable, MessageRejected, PropertiesTooLarge
from rmqclient.store.inspect import dump, verify
from rmqclient.store.log import record
from rmqclient.store.log.inner_batch import MAX_INNER_MESSAGES, inner_messages, is_batch, opened, unique_keys
from rmqclient.store.log.query import END_OF_TIME
from tests.support.oracle import reference
from tests.support.sweeps import share_of

FLAGS = 0x80
NEED_UNWRAP = 0x40
"""What RocketMQ 5's producer sets, too."""
LIMIT = 1 << 20
CONFIG = StoreConfig(commit_log_file_bytes=1 << 20, max_body_bytes=1 << 18, max_opened_body_bytes=LIMIT)
QUICK = settings(max_examples=share_of(60), deadline=None, suppress_health_check=list(HealthCheck))

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0\1\2 "), min_size=1, max_size=12)
TAGS = WORDS.filter(lambda tag: tag != "*" and "||" not in tag and min(tag[0], tag[-1]) > " ")
PROPERTIES = st.dictionaries(WORDS.map("p{}".format), WORDS, max_size=4)
INNER = st.tuples(st.binary(max_size=200), st.integers(-(2**31), 2**31 - 1), PROPERTIES)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", CONFIG, housekeeping=False) as made:
        yield made


@pytest.fixture
def appender(store: MessageStore) -> Appender:
    return store.appenders.make(lambda topic: store.topics.create(topic, 1), lambda body: str(body).encode())


def packed(compression: Compression = Compression.ZSTD) -> Callable[[bytes], tuple[bytes, int]]:
    return lambda content: (compress(content, compression), compression.value)


def append(
    appender: Appender, messages: Sequence[Message], *, limit: int = LIMIT, key: str | None = None
) -> list[SendResult]:
    return appender.append_inner_batch(messages, packed(), key, most_bytes=limit)


def content_of(messages: Sequence[tuple[bytes, int, dict[str, str]]], *, closed: bool = True) -> bytes:
    """Encode as MessageDecoder.encodeMessage does; ``closed=False`` leaves out the last separator, as 5.x may."""
    parts = []
    for body, flag, properties in messages:
        text = "".join(f"{name}\1{value}\2" for name, value in properties.items()).encode()
        text = text if closed else text.removesuffix(b"\2")
        size = 22 + len(body) + len(text)
        parts.append(struct.pack(">iiiii", size, 0, 0, flag, len(body)) + body + struct.pack(">h", len(text)) + text)
    return b"".join(parts)


def batch(content: bytes, sys_flag: int = FLAGS, **fields: object) -> ReceivedMessage:
    """Return a record with this body, as a broker would have written it."""
    made = reference.ReferenceRecord(topic="flights", body=content, sys_flag=sys_flag, **fields)  # type: ignore[arg-type]
    outcome = record.decode(reference.encode(made), 0, made.commit_log_offset)
    assert isinstance(outcome, record.Record)
    return outcome.message


@QUICK
@given(
    messages=st.lists(INNER, min_size=1, max_size=20),
    closed=st.booleans(),
    compression=st.sampled_from(Compression),
    flags=st.sampled_from([FLAGS, FLAGS | NEED_UNWRAP]),
)
def test_what_is_in_a_batch_comes_out_as_records_that_are_valid_in_the_place_of_the_batch(
    messages: list[tuple[bytes, int, dict[str, str]]], closed: bool, compression: Compression, flags: int
) -> None:
    content = compress(content_of(messages, closed=closed), compression)
    whole = batch(content, flags | compression.value, queue_offset=7, queue_id=3)
    for number, (message, (body, flag, properties)) in enumerate(zip(opened(whole), messages, strict=True)):
        again = record.decode(message.record(), 0, message.commit_log_offset)
        assert isinstance(again, record.Record)
        for same in (message, again.message, pickle.loads(pickle.dumps(message)), message.redelivered()):
            assert (same.body, same.stored_body, same.flag, same.properties) == (body, body, flag, properties)
            assert (same.sys_flag, same.topic, same.queue_id, same.queue_offset) == (0, "flights", 3, 7)
            assert (same.commit_log_offset, same.born_timestamp) == (whole.commit_log_offset, whole.born_timestamp)
            assert (same.store_timestamp, same.offset_message_id) == (whole.store_timestamp, whole.offset_message_id)
        assert message.inner_number == number
        read = reference.decode(message.record(), 0)
        assert isinstance(read, reference.ReferenceRecord)
        assert read.body == body


@QUICK
@given(content=st.binary(max_size=400))
def test_rubbish_is_refused_or_adds_up(content: bytes) -> None:
    try:
        messages = inner_messages(batch(content))
    except BodyUnreadable as error:
        assert "damaged" in str(error)
    else:
        assert sum(22 + len(message.body) for message in messages) <= len(content)


@QUICK
@given(
    messages=st.lists(INNER, min_size=1, max_size=5),
    place=st.integers(min_value=0),
    change=st.binary(min_size=1, max_size=4),
    cut=st.booleans(),
)
@example(messages=[(b"x", 0, {})], place=16, change=b"\x7f\xff\xff\xff", cut=False)
@example(messages=[(b"x", 0, {})], place=0, change=b"\x80\x00\x00\x00", cut=False)
@example(messages=[(b"x", 0, {"a": "b"})], place=21, change=b"\x80\x00", cut=False)
def test_a_damaged_batch_is_refused_or_opened_and_never_more(
    messages: list[tuple[bytes, int, dict[str, str]]], place: int, change: bytes, cut: bool
) -> None:
    content = content_of(messages)
    place %= len(content)
    damaged = content[:place] if cut else content[:place] + change + content[place + len(change) :]
    whole = batch(damaged, properties=f"INNER_NUM\1{len(messages)}\2".encode())
    for message in opened(whole):
        assert message is whole or message.size <= len(damaged) + 200


def test_a_batch_with_fewer_messages_than_were_sent_is_refused() -> None:
    content = content_of([(b"a", 0, {}), (b"b", 0, {})])
    with pytest.raises(BodyUnreadable, match="1 messages, and 2 were sent"):
        inner_messages(batch(content[: len(content) // 2], properties=b"INNER_NUM\x012\x02"))
    with pytest.raises(BodyUnreadable, match="0 messages"):
        inner_messages(batch(b""))


def test_a_bomb_is_refused_at_its_cap_and_so_is_one_of_too_many_messages() -> None:
    bomb = compress(content_of([(bytes(LIMIT), 0, {})]), Compression.ZSTD)
    with pytest.raises(BodyUnreadable, match=f"more than {LIMIT}"):
        inner_messages(batch(bomb, FLAGS | Compression.ZSTD.value).limited_to(LIMIT))
    many = compress(content_of([(b"", 0, {})]) * (MAX_INNER_MESSAGES + 1), Compression.ZSTD)
    with pytest.raises(BodyUnreadable, match=f"more than {MAX_INNER_MESSAGES} messages"):
        inner_messages(batch(many, FLAGS | Compression.ZSTD.value))


def test_a_record_that_is_no_batch_stands_for_itself() -> None:
    message = batch(b"body", 0)
    assert opened(message) == (message,)
    with pytest.raises(ValueError, match="not a batch"):
        inner_messages(message)


# --- appending ------------------------------------------------------------------------------------


@pytest.mark.guarantee("G39")
@QUICK
@given(
    messages=st.lists(INNER, min_size=1, max_size=20), tags=st.none() | TAGS, compression=st.sampled_from(Compression)
)
def test_what_is_sent_as_a_batch_is_one_record_with_a_result_for_each_message(
    store: MessageStore,
    appender: Appender,
    messages: list[tuple[bytes, int, dict[str, str]]],
    tags: str | None,
    compression: Compression,
) -> None:
    sent = [
        Message("flights", body, tags=tags, keys=(f"k{number}",), properties=properties, flag=flag)
        for number, (body, flag, properties) in enumerate(messages)
    ]
    results = appender.append_inner_batch(sent, packed(compression), "tail", most_bytes=LIMIT)
    ids = [result.message_id for result in results]
    assert len(set(ids)) == len(ids)
    assert len({(result.queue, result.queue_offset, result.commit_log_offset) for result in results}) == 1
    whole = store.messages.at(results[0].queue, results[0].queue_offset)
    assert results[0].commit_log_end == whole.commit_log_offset + whole.size
    assert whole.sys_flag == FLAGS | compression.value
    assert (whole.tags, whole.properties["INNER_NUM"], whole.message_id) == (tags, str(len(sent)), ids[0])
    assert whole.keys == tuple(f"k{number}" for number in range(len(sent)))
    assert unique_keys(whole) == ids
    for message, result, given_ in zip(opened(whole), results, sent, strict=True):
        assert (message.message_id, message.keys, message.tags) == (result.message_id, given_.keys, tags)
        assert (message.body, message.flag, message.sharding_key) == (given_.body, given_.flag, "tail")
        assert {name: message.properties[name] for name in given_.properties or {}} == (given_.properties or {})


def test_every_message_is_found_by_its_id_and_by_its_keys(store: MessageStore, appender: Appender) -> None:
    append(appender, [Message("flights", b"before", keys=("N1",))])
    sent = [Message("flights", b"%d" % number, keys=("N1", f"leg-{number}")) for number in range(300)]
    results = append(appender, sent)
    for number in (0, 1, 15, 16, 255, 299):
        found = store.messages.by_id(results[number].message_id)
        assert found is not None
        assert found.body == b"%d" % number
        (found,) = store.messages.by_key("flights", f"leg-{number}")
        assert (found.body, is_batch(found)) == (b"%d" % number, False)
        (found,) = store.messages.by_key("flights", found.message_id)
        assert found.body == b"%d" % number
    newest_first = store.messages.by_key("flights", "N1", limit=1_000)
    assert [each.body for each in newest_first] == [*(b"%d" % number for number in reversed(range(300))), b"before"]
    assert store.messages.by_key("flights", "N1", begin_ms=END_OF_TIME) == []
    assert store.messages.by_id("0" * 32) is None


def test_the_ids_of_a_batch_follow_each_other_over_the_end_of_the_counter(
    store: MessageStore, appender: Appender
) -> None:
    for _ in range(9):
        results = append(appender, [Message("flights", b"x")] * 8_000)
        whole = store.messages.at(results[0].queue, results[0].queue_offset)
        assert unique_keys(whole) == [result.message_id for result in results]
        assert [message.message_id for message in opened(whole)] == unique_keys(whole)


def test_a_store_with_batches_has_nothing_to_complain_of_and_is_dumped(store: MessageStore, appender: Appender) -> None:
    for number in range(5):
        append(appender, [Message("flights", b"%d" % each, keys=(f"k{each}",)) for each in range(number + 1)])
    store.close()
    assert verify.verify(store.root) == []
    lines = io.BytesIO()
    assert list(dump.dump(store.root, lines)) == []
    dumped = [orjson.loads(line) for line in lines.getvalue().splitlines()]
    assert [line["inner_messages"] for line in dumped] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("messages", "error", "told"),
    [
        ([Message("a", b""), Message("b", b"")], MessageRejected, "one queue"),
        (
            [Message("a", b"", tags="x"), Message("a", b"", tags="y")],
            MessageRejected,
            "has one tag.*'y' in a batch of 'x'",
        ),
        ([Message("a", b"", tags="x"), Message("a", b"")], MessageRejected, "has one tag"),
        ([Message("a", b"")] * (MAX_INNER_MESSAGES + 1), BatchTooLarge, f"limit of {MAX_INNER_MESSAGES}"),
        ([Message("a", bytes(1 << 17))] * 9, BatchTooLarge, "max_opened_body_bytes"),
        ([Message("a", bytes((1 << 18) + 1))], BodyTooLarge, "max_body_bytes"),
        ([Message("a", b"", keys=(f"key-{number:030}",)) for number in range(1_000)], PropertiesTooLarge, "keys"),
        ([Message("a", b"", properties={"UNIQ_KEY": "1"})], MessageRejected, "belongs to the queue"),
    ],
    ids=["topics", "tags", "no-tag", "count", "content", "body", "keys", "reserved"],
)
def test_a_batch_that_cannot_be_is_refused_as_a_whole(
    store: MessageStore, appender: Appender, messages: list[Message], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        append(appender, messages)
    assert store.state.published_to == 0
    with pytest.raises(TypeError, match="Message objects, not str"):
        append(appender, ["body"])  # type: ignore[list-item]
    assert append(appender, []) == []


def test_a_batch_that_is_too_long_compressed_is_refused(store: MessageStore, appender: Appender) -> None:
    sent = [Message("a", reference.encode(reference.ReferenceRecord(topic="t", body=bytes(9)))) for _ in range(3)]
    with pytest.raises(BatchTooLarge, match=f"{CONFIG.max_body_bytes}.*smaller batch"):
        appender.append_inner_batch(sent, lambda _: (bytes(CONFIG.max_body_bytes + 1), 0x201), most_bytes=LIMIT)
    assert store.state.published_to == 0
