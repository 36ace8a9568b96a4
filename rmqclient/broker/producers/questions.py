"""Questions: asks producers about undecided transactions, by request 39.

The store stores an undecided half message again after a while, which rings the bell of its queue. One thread waits for
that bell for all connected producers. A local producer of the same group looks at these messages, too
(:mod:`rmqclient.local.transactions`); the first decision counts.

One connection of the group is asked, in turn. If it does not answer, the next round asks another one.
[AbstractTransactionalMessageCheckListener, Broker2Client.checkProducerTransactionState]
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Final

from rmqclient.broker.request import Peer
from rmqclient.broker.sending.hosts import offset_id
from rmqclient.errors import QueueError
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import ONEWAY, Frame
from rmqclient.remoting.table import request
from rmqclient.store import HALF_TOPIC, LONGEST_SLEEP_S, MessageQueue, MessageStore, ReceivedMessage
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log
from rmqclient.store.waiting.half_messages import HALF_QUEUE, checks_of, group_of
from rmqclient.store.waiting.real_queue import real_queue

_log = Log(__name__)

PeersOf = Callable[[str], Sequence[Peer]]
"""Returns the connections of a group of producers; for the thread of the event loop."""

_READ_AT_ONCE: Final = 256
_GATHER_S: Final = 0.05
"""Seconds between a ring and the look, so that one look finds half messages that are stored in a row."""


class Questions:
    """Asks remote producers. :meth:`begin` starts the thread that listens."""

    def __init__(self, store: MessageStore, peers_of: PeersOf) -> None:
        self._store = store
        self._peers_of = peers_of
        self._turns = itertools.count()
        self._closed = threading.Event()
        self._bell = store.arrival_bell()
        self._topic_bell = store.membership_bell()
        self._next = store.transactions.end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; it asks from the thread of this loop."""
        self._loop = loop
        self._thread = GuardedThread(target=self._run, name="rmq-serve-questions")
        self._thread.start()

    def close(self) -> None:
        """End the thread, and wait for its end."""
        self._closed.set()
        self._bell.ring()
        self._topic_bell.ring()
        if self._thread is not None:
            self._thread.join()

    def ask(self, half: ReceivedMessage) -> None:
        """Ask a connected producer of its group about a half message, if there is one. For any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send, half)

    def _run(self) -> None:
        while not self._closed.is_set():
            heard = self._topic_bell.heard()
            if HALF_TOPIC in self._store.topics:
                break
            self._topic_bell.wait(heard, LONGEST_SLEEP_S)
        while not self._closed.is_set():
            heard = self._bell.arm(HALF_QUEUE)
            try:
                self._look()
            except QueueError as error:
                _log.error("undecided transactions cannot be read now: %s", error)
            except Exception:  # noqa: BLE001 - without this thread no producer would be asked any more
                _log.exception("undecided transactions cannot be read now")
            if not self._closed.is_set():
                self._bell.wait(heard, LONGEST_SLEEP_S)
                self._closed.wait(_GATHER_S)

    def _look(self) -> None:
        """Ask about half messages that were stored again since the last look."""
        end = self._store.transactions.end
        while self._next < end and not self._closed.is_set():
            found = self._store.transactions.pending(self._next, _READ_AT_ONCE)
            for half in found:
                if checks_of(half) > 0:
                    self.ask(half)
            self._next = found[-1].queue_offset + 1 if len(found) == _READ_AT_ONCE else max(self._next, end)

    def _send(self, half: ReceivedMessage) -> None:
        queue = real_queue(half)
        peers = [peer for peer in self._peers_of(group_of(half)) if peer.is_open]
        if queue is None or not peers:
            return
        peer = peers[next(self._turns) % len(peers)]
        peer.send(_question(half, queue, peer))


def _question(half: ReceivedMessage, queue: MessageQueue, peer: Peer) -> Frame:
    asked = request(
        RequestCode.CHECK_TRANSACTION_STATE,
        restored(half, queue),
        tranStateTableOffset=half.queue_offset,
        commitLogOffset=half.commit_log_offset,
        msgId=half.message_id,
        transactionId=half.message_id,
        offsetMsgId=offset_id(peer.local, half.commit_log_offset),
    )
    asked.flag = ONEWAY
    return asked


def restored(half: ReceivedMessage, queue: MessageQueue) -> bytes:
    """Return a half message's record with its target queue in place of the half topic's. [MessageDecoder.encode]

    ``__CRC32#`` stays that of the half message, as with a broker; readers check the CRC of the body.
    """
    record, old, new = half.record(), half.topic.encode(), queue.topic.encode()
    properties_size = _properties_size(record, old)
    topic_at = len(record) - properties_size - 2 - len(old)
    changed = bytearray(record[: topic_at - 1]) + bytes((len(new),)) + new + record[topic_at + len(old) :]
    changed[0:4] = len(changed).to_bytes(4, "big")
    changed[12:16] = queue.queue_id.to_bytes(4, "big")
    return bytes(changed)


def _properties_size(record: bytes, topic: bytes) -> int:
    """Return the bytes of properties at the end of a record."""
    shift = (12 if record[39] & 0x10 else 0) + (12 if record[39] & 0x20 else 0)
    body_at = 84 + shift
    body_size = int.from_bytes(record[body_at : body_at + 4], "big")
    return len(record) - (body_at + 4 + body_size + 1 + len(topic) + 2)
