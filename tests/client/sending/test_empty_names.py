"""Empty tags, keys and sharding keys: they would come back as None, so no way to send takes them."""

import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from rmqclient import Compression, Message, Outbox, Producer, PullConsumer
from rmqclient.errors import MessageRejected
from rmqclient.store import MessageStore, stored_message

WAYS: dict[str, Callable[[Producer, Message, str | None], object]] = {
    "send": lambda producer, message, key: producer.send(message, key),
    "delayed": lambda producer, message, key: producer.send(message, key, delay=5),
    "async": lambda producer, message, key: producer.send_async(message, key).result(),
    "once": lambda producer, message, key: producer.send_once(message, "k", sharding_key=key),
    "batch": lambda producer, message, key: producer.send_batch([message], key),
    "compressed batch": lambda producer, message, key: producer.send_batch(
        [message], key, compression=Compression.ZLIB
    ),
    "request": lambda producer, message, key: producer.request(message, timeout=1, sharding_key=key),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("parts", "sharding_key"), [({"tags": ""}, None), ({"keys": [""]}, None), ({"keys": ["a", ""]}, None), ({}, "")]
)
def test_what_is_empty_is_refused_before_anything_is_written(
    store: MessageStore, producer: Producer, way: str, parts: dict[str, object], sharding_key: str | None
) -> None:
    with pytest.raises(MessageRejected, match="''"):
        WAYS[way](producer, Message("TopicA", b"body", **parts), sharding_key)  # type: ignore[arg-type]
    assert store.state.published_to == 0


def test_an_outbox_refuses_an_empty_sharding_key_with_the_row() -> None:
    outbox = Outbox()
    with closing(sqlite3.connect(":memory:")) as connection:
        outbox.create(connection)
        connection.execute("CREATE TABLE orders (id INTEGER)")
        connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(MessageRejected):
            outbox.add(connection, Message("TopicA", b"body"), "")


def test_what_an_earlier_version_made_is_still_sent(store: MessageStore, producer: Producer) -> None:
    result = producer.send(stored_message("TopicA", b"body", "", ["", "a"], None, 0))
    with PullConsumer(store, group="readers") as consumer:
        (read,) = consumer.pull(result.queue, result.queue_offset).messages
    assert (read.tags, read.keys) == (None, ("a",))


@pytest.mark.parametrize("flag", [True, 1.5, "1", 2**31, -(2**31) - 1, 10**30])
def test_a_flag_is_a_number_of_32_bits(flag: object) -> None:
    with pytest.raises((TypeError, ValueError), match="flag"):
        Message("TopicA", b"body", flag=flag)  # type: ignore[arg-type]
