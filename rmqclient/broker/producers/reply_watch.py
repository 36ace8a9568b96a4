"""Reply watch: replies that local processes store for remote requesters.

A local handler stores its reply in the reply topic, where a local requester looks for it
(:mod:`rmqclient.backend.reply_topic`). A remote requester waits for request 326 instead. So while remote requests wait
for replies, one thread follows the reply topic and finds these replies by their tag, the requester's client id.
Otherwise the thread sleeps.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final

from rmqclient.backend.reply_topic import reply_queues
from rmqclient.errors import QueueError
from rmqclient.filters.tag import TagFilter
from rmqclient.local.backend import local_backend
from rmqclient.store import LONGEST_SLEEP_S, ArrivalBell, MessageQueue, MessageStore, ReceivedMessage
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_READ_AT_ONCE: Final = 256
_GRACE_S: Final = 5.0
"""Seconds after the deadline for which a reply is still pushed: the requester decides what is late."""
_LONGEST_S: Final = 3_600.0
_MOST_CLIENTS: Final = 10_000


class ReplyWatch:
    """Passes replies to remote requesters to ``take``, on the thread of the event loop."""

    def __init__(self, store: MessageStore, topic: str, take: Callable[[ReceivedMessage], None]) -> None:
        self._store = store
        self._backend = local_backend(store)
        self._topic = topic
        self._take = take
        self._changed = threading.Condition()
        self._until: dict[str, float] = {}
        """Client id → monotonic seconds until which its replies are looked for."""
        self._positions: dict[MessageQueue, int] = {}
        self._bell: ArrivalBell | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call ``take`` on the thread of this loop."""
        self._loop = loop

    @property
    def is_at_work(self) -> bool:
        """Whether any client expects a reply."""
        return bool(self._until)

    def expect(self, client_id: str, seconds: float) -> None:
        """Look for replies to a client for some time. Call it before the request is stored. For any thread."""
        until = time.monotonic() + min(max(0.0, seconds), _LONGEST_S) + _GRACE_S
        with self._changed:
            if self._is_closed or (client_id not in self._until and len(self._until) >= _MOST_CLIENTS):
                return
            if not self._until:
                self._positions = self._ends()
            self._until[client_id] = max(until, self._until.get(client_id, 0.0))
            if self._thread is None:
                self._thread = GuardedThread(target=self._run, name="rmq-serve-replies")
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """End the thread, and wait for its end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._bell is not None:
            self._bell.ring()
        if self._thread is not None:
            self._thread.join()

    def _ends(self) -> dict[MessageQueue, int]:
        topics = self._store.topics
        queues = topics.queues(self._topic) if self._topic in topics else []
        return {queue: topics.max_offset(queue) for queue in queues}

    def _run(self) -> None:
        self._bell = self._store.arrival_bell()
        while self._is_needed():
            try:
                self._follow(self._bell)
            except QueueError as error:
                _log.error("replies to remote clients cannot be read now: %s", error)
                time.sleep(LONGEST_SLEEP_S)
            except Exception:  # noqa: BLE001 - without this thread no reply would be found any more
                _log.exception("replies to remote clients cannot be read now")
                time.sleep(LONGEST_SLEEP_S)

    def _is_needed(self) -> bool:
        """Wait until some client expects a reply; False if this was closed."""
        with self._changed:
            now = time.monotonic()
            self._until = {client_id: until for client_id, until in self._until.items() if until > now}
            self._changed.wait_for(lambda: self._until or self._is_closed)
            return not self._is_closed

    def _follow(self, bell: ArrivalBell) -> None:
        """Look for replies once, and sleep until the next message of the topic.

        The queues' ends are read before the set of waiting clients: so the request of any reply below these ends is
        already in the set.
        """
        queues = reply_queues(self._backend.topics, self._topic)
        heard = bell.arm(*queues)
        ends = {queue: self._backend.queues.span(queue).max_offset for queue in queues}
        with self._changed:
            clients = frozenset(self._until)
        if clients:
            wanted = TagFilter(clients)
            for queue, end in ends.items():
                self._read(queue, end, wanted)
        bell.wait(heard, LONGEST_SLEEP_S)

    def _read(self, queue: MessageQueue, end: int, wanted: TagFilter) -> None:
        position = self._positions.get(queue, 0)
        while position < end:
            found = self._backend.queues.read(queue, position, _READ_AT_ONCE, wanted)
            self._pass_on([message for message in found.messages if message.queue_offset < end])
            position = min(max(position + 1, found.next_offset), end)
        with self._changed:
            self._positions[queue] = max(end, self._positions.get(queue, 0))

    def _pass_on(self, replies: list[ReceivedMessage]) -> None:
        for reply in replies:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._take, reply)
