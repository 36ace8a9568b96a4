"""Appenders: what a producer stores messages with, and the topics that the store makes for its own messages."""

from __future__ import annotations

from collections.abc import Callable

from rmqclient.store import layout
from rmqclient.store.append.admission import Own, Waits
from rmqclient.store.append.appending import AppendFiles
from rmqclient.store.append.preparer import Preparer
from rmqclient.store.append.replicas import Replicas
from rmqclient.store.errors import MessageRejected, QueueError
from rmqclient.store.kernel._kernel import (
    DELAYS,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OPERATION_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    Appender,
    Route,
)
from rmqclient.store.layout import IDLE
from rmqclient.store.life import Life
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.shared_state import process_start_unique
from rmqclient.store.settings.disk import Disk
from rmqclient.store.settings.topic_table import write_queues_of
from rmqclient.store.waiting import timer

QUEUES_OF_WAITING = {SCHEDULE_TOPIC: len(DELAYS), TIMER_TOPIC: 1, HALF_TOPIC: 1, OPERATION_TOPIC: 1, GIVEN_UP_TOPIC: 1}
"""How many queues each topic has in which messages wait, by topic. The first message of its kind makes the topic."""

_HOST = bytes((127, 0, 0, 1))
_OF_BROKERS = frozenset(("OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC"))
"""Topics that brokers keep for themselves. [TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET]"""
_BROKER_PORT = 10_911  # RocketMQ's default; part of every offset message id


class Appenders:
    """Makes the appenders of one process."""

    def __init__(self, parts: Parts, life: Life, disk: Disk, replicas: Replicas) -> None:
        self._parts = parts
        self._life = life
        self._disk = disk
        self._replicas = replicas
        self._files = AppendFiles(parts, disk, Own(replicas))
        self._preparers: dict[Appender, Preparer] = {}

    def make(
        self,
        make_topic: Callable[[str], list[MessageQueue]],
        encode_body: Callable[[object], bytes],
        *,
        prepare: bool = True,
        admission: type[Waits] = Waits,
    ) -> Appender:
        """Return an appender for one producer. Raises StoreClosed.

        ``make_topic`` returns the queues of a topic that the appender does not know yet; ``encode_body`` encodes a body
        that is not bytes. ``prepare=False`` populates no pages ahead: a producer that waits for a flush of each message
        would wait for these pages, too. ``admission`` says how it waits for followers, in a store that does.
        """
        self._life.check_usable()
        state, config = self._parts.state, self._parts.config
        files = AppendFiles(self._parts, self._disk, admission(self._replicas))

        def make_route(topic: str) -> Route:
            return self._route(topic, make_topic)

        appender = Appender(
            state.mapping,
            files,
            make_route,
            self._is_current,
            encode_body,
            log_file_bytes=config.commit_log_file_bytes,
            entries_per_file=config.consume_queue_file_entries,
            max_body_bytes=config.max_body_bytes,
            timeout_ms=config.lock_timeout_ms,
            busy_timeout_ms=config.page_cache_busy_timeout_ms,
            queue_table_at=layout.QUEUE_TABLE_AT,
            queue_slot_size=layout.QUEUE_SLOT.size,
            changes_at=layout.RUNTIME_HEADER.at["membership_word"],
            timer_at=layout.TIMER_AT,
            timer_bits=layout.TIMER_BITS,
            born_host=_HOST + (0).to_bytes(4, "big"),
            store_host=_HOST + _BROKER_PORT.to_bytes(4, "big"),
            unique_prefix=process_start_unique(),
        )
        if prepare:
            self._preparers[appender] = Preparer(state, self._parts.log_files, appender)
        return appender

    def for_waiting(self) -> Appender:
        """Return what delivers messages that waited: to topics that are there, and to those where messages wait."""
        return self.make(self._parts.topics.queues, _encoded, prepare=False, admission=Own)

    def settle(self) -> int:
        """Finish or undo an append whose process died; return the end of the log after that.

        Every message that this process has appended stands below it. Raises StoreClosed, StoreBusy, StoreCorrupt,
        LimitReached.
        """
        self._life.check_usable()
        if self._parts.state.append_stage != IDLE:
            self._files.repair()
        return self._parts.state.published_to

    def prepare_next_file(self) -> None:
        """Make the commit log file that the next roll needs. Raises StoreFull."""
        self._files.prepare_next()

    def end(self, appender: Appender) -> None:
        """End the thread that populates pages for an appender that is used no more; twice does nothing."""
        preparer = self._preparers.pop(appender, None)
        if preparer is not None:
            preparer.close()

    def close(self) -> None:
        """End the threads that populate pages; returns when they have ended."""
        for appender in list(self._preparers):
            self.end(appender)

    def _route(self, topic: str, make_topic: Callable[[str], list[MessageQueue]]) -> Route:
        if topic in _OF_BROKERS:
            raise MessageRejected(
                f"topic {topic!r} belongs to RocketMQ's brokers, and no client gets what stands there"
            )
        topics, own = self._parts.topics, QUEUES_OF_WAITING.get(topic)
        queues = topics.create(topic, own) if own else make_topic(topic)
        slots = [topics.slot(queue) for queue in queues]
        if topic == TIMER_TOPIC:  # its deliverer could not arm the queue while the topic was missing
            self._parts.state.signal_arrival(timer.LANE)
        config = None if own else topics.configs().get(topic)
        write_count = None if config is None else write_queues_of(config)
        return Route(topic, list(queues), slots, topics.is_compact(topic), write_count, config)

    def _is_current(self, route: Route) -> bool:
        """Whether the topic of a route has the settings that it was made for; a removed one keeps its own."""
        if route.settings is None:
            return True
        try:
            config = self._parts.topics.configs().get(route.topic)
        except QueueError:  # a broken file of settings stops no send to a topic that is known
            return True
        return config is None or config == route.settings


def _encoded(body: object) -> bytes:
    return str(body).encode()
