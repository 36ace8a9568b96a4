"""Message queries: stored messages by key, by unique id and by log offset. Requests 12 and 33.

They read the index and the disk, so a thread of the pool answers them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from rmqclient.broker.pulling.store_host import with_store_host
from rmqclient.broker.request import Request
from rmqclient.broker.routes import ASKED_BY_HANDLER, SUB, Route, of_topic
from rmqclient.broker.topics.system_topics import topic_of
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageStore
from rmqclient.store.errors import MessageExpired, StoreCorrupt

_MOST_BY_KEY: Final = 64
"""Messages found by one query by key, at most. [maxMsgsNumBatch]"""

_MOST_BY_ID: Final = 32
"""Messages found by one query by unique id, at most, whatever it asks for. [defaultQueryMaxNum]"""

_MOST_BYTES: Final = 8 * 1024 * 1024
"""Bytes of the records of one answer, at most, but always one record."""


class MessageQueries:
    """The room of queries for single messages. Its handlers run in any thread."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def routes(self) -> Iterable[Route]:
        """Declare the queries. Each of them may read the disk."""
        yield Route(RequestCode.QUERY_MESSAGE, self.by_key, needs=of_topic(SUB), writes=False, slow=True)
        yield Route(RequestCode.VIEW_MESSAGE_BY_ID, self.by_log_offset, needs=ASKED_BY_HANDLER, writes=False, slow=True)

    def by_key(self, request: Request) -> Frame:
        """Answer 12: the newest messages of a topic with a key or a unique id, in order of age, the oldest first.

        The key itself is compared; a stock broker compares only its hash (DefaultMessageStore.queryMessage).
        """
        fields = request.fields
        most = _MOST_BY_ID if fields.get("_UNIQUE_KEY_QUERY") else min(fields["maxNum"], _MOST_BY_KEY)
        found = self._store.messages.by_key(
            fields["topic"],
            fields["key"],
            begin_ms=fields["beginTimestamp"],
            end_ms=fields["endTimestamp"],
            limit=max(0, most),
        )
        for message in found:
            request.check_topic(topic_of(message), writes=False)
        local = request.peer.local
        body = _joined(with_store_host(message.record(), local) for message in reversed(found))
        index = self._store.index_files.newest()
        header = None if index is None else index.header
        answer: dict[str, Any] = {
            "indexLastUpdateTimestamp": 0 if header is None else header.end_timestamp,
            "indexLastUpdatePhyoffset": 0 if header is None else header.end_offset,
        }
        if body:
            return request.success(body, **answer)
        return request.failure(
            ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct", **answer
        )

    def by_log_offset(self, request: Request) -> Frame:
        """Answer 33: the record at a log offset."""
        offset = request.fields["offset"]
        if 0 <= offset < self._store.state.published_to:
            try:
                message = self._store.messages.read(offset)
            except (MessageExpired, StoreCorrupt):  # no record begins there, or it was removed
                pass
            else:
                request.check_topic(topic_of(message), writes=False)
                return request.success(with_store_host(message.record(), request.peer.local))
        return request.failure(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")


def _joined(records: Iterable[bytes]) -> bytes:
    """Return records joined, as many as fit into an answer."""
    body = bytearray()
    for record in records:
        if body and len(body) + len(record) > _MOST_BYTES:
            break
        body += record
    return bytes(body)
