"""Records of RocketMQ's message trace: what clients say of a message, as the text of messages of a topic of its own.

A record is fields with byte 1 between them and byte 2 at its end; a trace message holds several [TraceDataEncoder]::

    Pub             time  region  group  topic  id  tags  keys  store host  bytes  cost ms  type  offset id  success
    SubBefore       time  region  group  request  id  retries  keys
    SubAfter        request  id  cost ms  success  keys  outcome  time  group
    EndTransaction  time  region  group  topic  id  tags  keys  store host  type  transaction  state  from check

A field that has no value is ``null``, because Java's reader drops empty fields at the end. Clients of 5.x end ``Pub``
with the client's host, too. The keys of a trace message are the ids and keys of its messages: an index finds it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import NamedTuple

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
REGION = "DefaultRegion"

_BETWEEN, _END = "\x01", "\x02"
_NONE = "null"


class Kind(enum.IntEnum):
    """What a message was when it was sent [MessageType]. RocketMQ 4.9 knows no other number."""

    NORMAL = 0
    HALF = 1
    COMMITTED = 2
    DELAYED = 3


class Outcome(enum.IntEnum):
    """How the call of a handler ended [ConsumeReturnType]."""

    SUCCESS = 0
    TIMEOUT = 1
    EXCEPTION = 2
    NOTHING = 3
    FAILED = 4


class Pub(NamedTuple):
    """A message was sent."""

    at_ms: int
    """When the send began."""
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: tuple[str, ...]
    store_host: str
    body_bytes: int
    cost_ms: int
    kind: int
    offset_message_id: str
    success: bool

    def encoded(self) -> str:
        """Return the record."""
        return _record(
            "Pub", self.at_ms, REGION, self.group, self.topic, self.message_id, self.tags, " ".join(self.keys),
            self.store_host, self.body_bytes, self.cost_ms, int(self.kind), self.offset_message_id, self.success,
        )  # fmt: skip


class SubBefore(NamedTuple):
    """A handler is called with a message."""

    at_ms: int
    group: str
    request_id: str
    """The same for all records of one call."""
    message_id: str
    retries: int
    keys: tuple[str, ...]

    def encoded(self) -> str:
        """Return the record."""
        keys = " ".join(self.keys)
        return _record(
            "SubBefore", self.at_ms, REGION, self.group, self.request_id, self.message_id, self.retries, keys
        )


class SubAfter(NamedTuple):
    """The call has ended."""

    at_ms: int
    group: str
    """Empty in records of clients before 4.8."""
    request_id: str
    message_id: str
    keys: tuple[str, ...]
    cost_ms: int
    success: bool
    outcome: int

    def encoded(self) -> str:
        """Return the record."""
        return _record(
            "SubAfter", self.request_id, self.message_id, self.cost_ms, self.success, " ".join(self.keys),
            int(self.outcome), self.at_ms, self.group,
        )  # fmt: skip


class EndTransaction(NamedTuple):
    """A transaction was decided."""

    at_ms: int
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: tuple[str, ...]
    store_host: str
    commit: bool
    from_check: bool

    def encoded(self) -> str:
        """Return the record."""
        state = "COMMIT_MESSAGE" if self.commit else "ROLLBACK_MESSAGE"
        return _record(
            "EndTransaction", self.at_ms, REGION, self.group, self.topic, self.message_id, self.tags,
            " ".join(self.keys), self.store_host, int(Kind.COMMITTED), self.message_id, state, self.from_check,
        )  # fmt: skip


Record = Pub | SubBefore | SubAfter | EndTransaction


def decoded(text: str) -> Iterator[Record]:
    """Yield the records of a trace message of any client. What is none is passed over."""
    for line in text.split(_END):
        kind, *fields = line.split(_BETWEEN)
        read = _READERS.get(kind)
        if read is not None:
            try:
                yield read(fields)
            except (ValueError, IndexError):
                continue


def _record(*fields: object) -> str:
    return _BETWEEN.join(_text(field) for field in fields) + _END


def _text(field: object) -> str:
    if isinstance(field, bool):
        return "true" if field else "false"
    return _NONE if field is None or field == "" else str(field)


def _some(field: str) -> str | None:
    return None if field in {_NONE, ""} else field


def _keys(field: str) -> tuple[str, ...]:
    return tuple((_some(field) or "").split())


def _pub(fields: list[str]) -> Pub:
    at, _, group, topic, message_id, tags, keys, host, size, cost, kind, *rest = fields
    offset_id = rest[0] if len(rest) > 1 else ""  # clients before 4.4 wrote none
    success = rest[1 if len(rest) > 1 else 0] == "true"
    return Pub(
        int(at), group, topic, message_id, _some(tags), _keys(keys), host, int(size), int(cost), int(kind),
        _some(offset_id) or "", success,
    )  # fmt: skip


def _sub_before(fields: list[str]) -> SubBefore:
    at, _, group, request_id, message_id, retries, *keys = fields
    return SubBefore(int(at), group, request_id, message_id, int(retries), _keys(keys[0] if keys else ""))


def _sub_after(fields: list[str]) -> SubAfter:
    request_id, message_id, cost, success, *rest = fields
    keys, outcome, at, group, *_ = [*rest, *["", "0", "0", ""][len(rest) :]]
    return SubAfter(int(at), group, request_id, message_id, _keys(keys), int(cost), success == "true", int(outcome))


def _end_transaction(fields: list[str]) -> EndTransaction:
    at, _, group, topic, message_id, tags, keys, host, _kind, _transaction, state, from_check, *_ = fields
    commit = state == "COMMIT_MESSAGE"
    return EndTransaction(
        int(at), group, topic, message_id, _some(tags), _keys(keys), host, commit, from_check == "true"
    )


_READERS: dict[str, Callable[[list[str]], Record]] = {
    "Pub": _pub,
    "SubBefore": _sub_before,
    "SubAfter": _sub_after,
    "EndTransaction": _end_transaction,
}
