"""Producer: sends messages to a store from one process."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from rmqclient.codecs import encode_body
from rmqclient.message import Message, SendResult
from rmqclient.names import check_group, check_topic
from store import Durability, MessageQueue, MessageStore, StoreConfig, open_store
from store.errors import StoreClosed, TableFull


class Producer:
    """Sends messages; a context manager, and safe to share between the threads of one process.

    ``root`` is the directory of a store, made when it is missing, or an open store. ``group`` names the producers of
    one application. With ``StoreConfig(durability=Durability.SYNC)`` a send returns when its message is on the disk.

    After a fork the child must make its own; this one raises StoreClosed there.
    """

    def __init__(
        self, root: Path | str | MessageStore, *, group: str = "DEFAULT_PRODUCER", config: StoreConfig | None = None
    ) -> None:
        self.group = check_group(group)
        self._own_store = not isinstance(root, MessageStore)
        self._store = root if isinstance(root, MessageStore) else open_store(root, config)
        settings = config or self._store.config
        self._flusher = self._store.flusher if settings.durability is Durability.SYNC else None
        self._queue_count = settings.default_queue_count
        appender = self._store.appender(self._make_topic, encode_body, prepare=self._flusher is None)
        self._append: Callable[[Message, str | None], SendResult] = appender.append
        self._append_batch: Callable[[Sequence[Message], str | None], list[SendResult]] = appender.append_batch
        _producers.add(self)

    def send(self, message: Message, sharding_key: str | None = None) -> SendResult:
        """Store one message and return where it stands.

        Messages with the same ``sharding_key`` go to the same queue (SelectMessageQueueByHash); without one the queues
        take turns. A topic is made by its first message. When this returns the message survives ``kill -9`` of any
        process, and with SYNC durability a power cut.

        Raises MessageRejected, InvalidName, StoreFull, StoreBusy, StorePoisoned, StoreClosed, LimitReached, DiskFailed,
        NotFlushed, StoreUnusable; nothing was written unless the error's ``stored`` says so.
        """
        result = self._append(message, sharding_key)
        if self._flusher is not None:
            self._flusher.wait_until_flushed(result.commit_log_end)
        return result

    def send_batch(self, messages: Sequence[Message], sharding_key: str | None = None) -> list[SendResult]:
        """Store messages of one topic in one queue, in order, all of them or none. Raises as :meth:`send`."""
        results = self._append_batch(messages, sharding_key)
        if self._flusher is not None and results:
            self._flusher.wait_until_flushed(results[-1].commit_log_end)
        return results

    def create_topic(self, topic: str, queue_count: int) -> list[MessageQueue]:
        """Make a topic with 1 to 1,024 queues, or return the queues that it has.

        Raises InvalidName, ValueError, TableFull.
        """
        return self._store.topics.create(check_topic(topic), check_queue_count(queue_count))

    def close(self) -> None:
        """Leave the store. Closing twice does nothing."""
        self._append = self._append_batch = _closed
        if self._own_store:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make_topic(self, topic: str) -> list[MessageQueue]:
        return self.create_topic(topic, self._queue_count)

    def leave_to_parent(self) -> None:
        """Refuse every send from now on: this is a forked child."""
        self._append = self._append_batch = _forked


def check_queue_count(queue_count: int) -> int:
    """Return ``queue_count`` when a topic may have so many queues. Raises ValueError, TableFull."""
    if queue_count < 1:
        raise ValueError(f"queue_count={queue_count}: a topic has at least one queue")
    if queue_count > 1_024:
        raise TableFull(f"queue_count={queue_count}: a topic has at most 1,024 queues")
    return queue_count


def _closed(*_: object) -> NoReturn:
    raise StoreClosed("this producer was closed")


def _forked(*_: object) -> NoReturn:
    raise StoreClosed("this producer belongs to the process that this one was forked from: make one in this process")


_producers: weakref.WeakSet[Producer] = weakref.WeakSet()


def _after_fork() -> None:
    for producer in list(_producers):
        producer.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
