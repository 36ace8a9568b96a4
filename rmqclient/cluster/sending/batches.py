"""Batches: messages of one topic for one queue, in as few requests as the brokers' limits allow.

A request 320 has up to 4 MiB, the limit of a body, and only uncompressed bodies. A batch in several requests is stored
in order, but no longer all or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rmqclient.errors import MessageRejected
from rmqclient.message import Message
from rmqclient.store.wire import encode_each


@dataclass(slots=True)
class Part:
    """Consecutive messages that fit into one request."""

    messages: list[Message] = field(default_factory=list)
    extras: list[dict[str, str]] = field(default_factory=list)
    encoded: list[bytes] = field(default_factory=list)
    size: int = 0

    @property
    def is_batch(self) -> bool:
        """Whether this is sent as a batch; False for a single message that cannot be."""
        return len(self.messages) > 1

    @property
    def body(self) -> bytes:
        """The body of the request for a batch."""
        return b"".join(self.encoded)

    @property
    def message_ids(self) -> list[str]:
        """The ids of the messages."""
        return [extra["UNIQ_KEY"] for extra in self.extras]


def parts_of(messages: Sequence[Message], extras: Sequence[dict[str, str]], limit_bytes: int) -> Iterator[Part]:
    """Yield the parts of a batch, in order. Bodies must be bytes. Raises MessageRejected, PropertiesTooLarge."""
    part = Part()
    for message, extra, encoded in zip(messages, extras, encode_each(messages, extras), strict=True):
        is_alone = not encoded or len(encoded) > limit_bytes
        if part.messages and (is_alone or part.size + len(encoded) > limit_bytes):
            yield part
            part = Part()
        part.messages.append(message)
        part.extras.append(extra)
        part.encoded.append(encoded)
        part.size += len(encoded)
        if is_alone:
            yield part
            part = Part()
    if part.messages:
        yield part


def topic_of(messages: Sequence[Message]) -> str:
    """Return the topic of a batch, which has at least one message. Raises MessageRejected for several topics."""
    topics = {message.topic for message in messages}
    if len(topics) > 1:
        first, second = sorted(topics)[:2]
        raise MessageRejected(f"a batch goes to one queue: it has messages of topic {first!r} and of topic {second!r}")
    return topics.pop()
