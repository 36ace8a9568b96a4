"""Message store: wires the parts. Open, append, read, take, close.

:mod:`rmqclient.store.recovery.opening` says what opening does. Closing: the last process flushes, writes the checkpoint
and ``consumerOffset.json``, brings the index up to date, and removes ``abort``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from rmqclient.store import layout
from rmqclient.store.append.appending import IDLE, AppendFiles, repair
from rmqclient.store.append.preparer import Preparer
from rmqclient.store.append.releaser import REMOVED_WORD, Releaser
from rmqclient.store.config import StoreConfig
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import MessageExpired, StoreClosed, StoreCorrupt, StoreFull, store_errors
from rmqclient.store.files.file_lock import BROKER_BYTE, GATE_BYTE, TOPIC_BYTE, LockFile
from rmqclient.store.files.file_queue import MappingCache
from rmqclient.store.files.file_system import check_file_system
from rmqclient.store.files.mapped_file import map_file
from rmqclient.store.kernel._kernel import (
    DELAYS,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OPERATION_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    Appender,
    Mapping,
    QueueGrant,
    ReceivedMessage,
    Route,
    TagSet,
)
from rmqclient.store.log import commit_log, query
from rmqclient.store.log.dispatch import IndexDispatch
from rmqclient.store.log.index_file import IndexFiles
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.recovery.opening import enter, files_of, make_root, settle_config
from rmqclient.store.recovery.recovery import ABORT
from rmqclient.store.runtime.arrivals import ArrivalBell, Bell
from rmqclient.store.runtime.group_table import GroupQueueSlot, GroupTable
from rmqclient.store.runtime.members import MemberTable
from rmqclient.store.runtime.shared_state import SharedState, process_start_unique, queue_slot_at
from rmqclient.store.runtime.worker_table import WorkerTable
from rmqclient.store.settings import config_file
from rmqclient.store.settings.disk import LOOK_INTERVAL_MS, Disk
from rmqclient.store.settings.topic_table import TopicTable
from rmqclient.store.upkeep.compaction import Compaction
from rmqclient.store.upkeep.flush import LEAST_PAGES, QUEUES_INTERVAL_MS, QUEUES_LEAST_PAGES, Flusher
from rmqclient.store.upkeep.housekeeper import Housekeeper
from rmqclient.store.upkeep.retention import FIRST_RUN_AFTER_MS, Retention
from rmqclient.store.upkeep.timetable import Every
from rmqclient.store.waiting import timer
from rmqclient.store.waiting.once import Once
from rmqclient.store.waiting.schedule import PERSIST_INTERVAL_MS, Schedule
from rmqclient.store.waiting.timer import Timer
from rmqclient.store.waiting.transaction import Transactions

_log = logging.getLogger(__name__)

_HOST = bytes((127, 0, 0, 1))
_BROKER_PORT = 10_911  # RocketMQ's default; part of every offset message id
_OPEN_TIMEOUT_S = 120.0
_INDEX_INTERVAL_MS = 200
_QUEUES_OF_WAITING = {SCHEDULE_TOPIC: len(DELAYS), TIMER_TOPIC: 1, HALF_TOPIC: 1, OPERATION_TOPIC: 1, GIVEN_UP_TOPIC: 1}


def open_store(
    root: Path | str, config: StoreConfig | None = None, *, create: bool = True, housekeeping: bool = True
) -> MessageStore:
    """Open the store in ``root``, made when it is missing and ``create`` is true.

    ``config=None`` takes the fixed settings that the directory was made with. ``housekeeping=False`` leaves the
    housekeeper's role to other processes.

    Raises StoreUnusable, StoreInUse, ConfigMismatch, StoreCorrupt, StoreFull, StoreBusy, LimitReached, DiskFailed.
    """
    path = Path(root)
    with store_errors(f"{path} cannot be opened"):
        make_root(path, create=create)
        check_file_system(path, allow_network=config is not None and config.allow_network_file_system)
        lock = LockFile(path / "lock")
        try:
            with lock.held(GATE_BYTE, _OPEN_TIMEOUT_S):
                settled = settle_config(path, config)
                state = enter(path, settled, lock)
            return MessageStore(path, settled, state, lock, housekeeping=housekeeping)
        except BaseException:
            lock.close()
            raise


class MessageStore:
    """An open store, for one process. A context manager; use :func:`open_store`."""

    def __init__(
        self, root: Path, config: StoreConfig, state: SharedState, lock: LockFile, *, housekeeping: bool
    ) -> None:
        self.root = root
        self.config = config
        self.state = state
        self.lock = lock
        self._pid = os.getpid()
        self._closed = False
        self._mappings = MappingCache(config.max_mapped_files)
        self.log_files, self.consume_queues = files_of(root, config, self._mappings)
        self.topics = TopicTable(root, state, lock, config.lock_timeout_ms)
        self.groups = GroupTable(state, config.lock_timeout_ms)
        self.index_files = IndexFiles(root, config.index_slots, config.index_entries, self._mappings)
        self.flusher = Flusher(root, state, self.log_files, self.consume_queues, self.topics, config.lock_timeout_ms)
        self._index = IndexDispatch(state, lock, self.log_files, self.index_files, self.flusher.flush_index)
        self.disk = Disk(root, state, config)
        self.compaction = Compaction(root, state, self.topics, self.log_files, self.consume_queues, lock, config)
        self.retention = Retention(
            state,
            self.log_files,
            self.consume_queues,
            self.index_files,
            self.topics,
            lock,
            self.disk,
            config,
            self.compaction,
        )
        self.schedule = Schedule(
            root,
            state,
            lock,
            self.topics,
            self.log_files,
            self.consume_queues,
            self.retention.oldest,
            self._delayed_appender,
        )
        self.timer = Timer(
            root,
            state,
            self.topics,
            self.log_files,
            self.consume_queues,
            self.retention.oldest,
            self._delayed_appender,
            lambda message_id: self.message_by_id(message_id, TIMER_TOPIC),
            self.flusher.wait_until_flushed,
            config.lock_timeout_ms,
        )
        self.retention.before_removal = self.timer.roll_below
        self.transactions = Transactions(
            state,
            self.topics,
            self.groups,
            self.log_files,
            self.consume_queues,
            self.retention.oldest,
            self._delayed_appender,
            self.flusher.wait_until_flushed,
            config,
        )
        self.once = Once(
            state,
            lock,
            self.topics,
            self.log_files,
            self.index_files,
            settle=self.settle_appends,
            build_index=self.build_index,
            timeout_ms=config.lock_timeout_ms,
        )
        self._releaser = Releaser(state, self._mappings)
        self.housekeeper = self._start_housekeeper() if housekeeping else None
        self._preparers: list[Preparer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def check_usable(self) -> None:
        """Raise StoreClosed when the store was closed or belongs to the process that this one was forked from."""
        if self._closed:
            raise StoreClosed(f"the store in {self.root} was closed")
        if os.getpid() != self._pid:
            raise StoreClosed(f"the store in {self.root} was opened by process {self._pid}: open it again after a fork")

    def appender(
        self,
        make_topic: Callable[[str], list[MessageQueue]],
        encode_body: Callable[[object], bytes],
        *,
        prepare: bool = True,
    ) -> Appender:
        """Return what appends messages for one producer.

        ``make_topic`` returns the queues of a topic that the appender does not know yet. ``prepare=False`` populates no
        pages ahead: for a producer that waits for a flush of each message, and would wait for these pages, too.
        """
        self.check_usable()

        def make_route(topic: str) -> Route:
            own = _QUEUES_OF_WAITING.get(topic)
            queues = self.topics.create(topic, own) if own else make_topic(topic)
            slots = [self.topics.slot(queue) for queue in queues]
            if topic == TIMER_TOPIC:  # whoever delivers could not ask to be woken while there was no such queue
                self.state.signal_arrival(timer.LANE)
            return Route(topic, list(queues), slots, self.topics.is_compact(topic))

        appender = Appender(
            self.state.mapping,
            self._append_files(),
            make_route,
            encode_body,
            log_file_bytes=self.config.commit_log_file_bytes,
            entries_per_file=self.config.consume_queue_file_entries,
            max_body_bytes=self.config.max_body_bytes,
            timeout_ms=self.config.lock_timeout_ms,
            busy_timeout_ms=self.config.page_cache_busy_timeout_ms,
            queue_table_at=layout.QUEUE_TABLE_AT,
            queue_slot_size=layout.QUEUE_SLOT.size,
            timer_at=layout.TIMER_AT,
            timer_bits=layout.TIMER_BITS,
            born_host=_HOST + (0).to_bytes(4, "big"),
            store_host=_HOST + _BROKER_PORT.to_bytes(4, "big"),
            unique_prefix=process_start_unique(),
        )
        if prepare:
            self._preparers.append(Preparer(self.state, self.log_files, appender))
        return appender

    def _append_files(self) -> AppendFiles:
        return AppendFiles(
            self.state,
            self.log_files,
            self.consume_queues,
            self.topics,
            self.config.lock_timeout_ms,
            self.disk,
            self._rolled,
        )

    def grant(self, slot: GroupQueueSlot, epoch: int, tags: TagSet) -> QueueGrant:
        """Return what takes and acknowledges the messages of one queue under one epoch."""
        self.check_usable()
        number = slot.queue_slot
        return QueueGrant(
            self.state.mapping,
            slot.at,
            queue_slot_at(number),
            number,
            self.topics.queue(number),
            epoch,
            self,
            tags,
            group_queue=slot.number,
            log_file_bytes=self.config.commit_log_file_bytes,
            entries_per_file=self.config.consume_queue_file_entries,
            timeout_ms=self.config.lock_timeout_ms,
            max_opened_body_bytes=self.config.max_opened_body_bytes,
            compacted=self.compaction.reader(self.topics.queue(number)),
        )

    def members(self) -> MemberTable:
        """Return the members of all groups, for one consumer, or for an onlooker."""
        self.check_usable()
        return MemberTable(self.root, self.state, self.lock, self.topics, self.groups, self.config.lock_timeout_ms)

    def arrival_bell(self, lane: int | None = None) -> ArrivalBell:
        """Return a bell that senders ring, on a random arrival lane or on this one."""
        self.check_usable()
        return ArrivalBell(self.state, self.topics, lane)

    def membership_bell(self) -> Bell:
        """Return the bell that rings when members, subscriptions or queues change."""
        self.check_usable()
        return Bell(self.state.words, layout.RUNTIME_HEADER.at["membership_word"])

    def removal_bell(self) -> Bell:
        """Return the bell that rings after files were removed: their mappings are to be let go."""
        self.check_usable()
        return Bell(self.state.words, REMOVED_WORD)

    def workers(self) -> WorkerTable:
        """Return the workers of all supervisors, for one supervisor, worker or onlooker."""
        self.check_usable()
        return WorkerTable(self.root, self.state, self.lock, self.config.lock_timeout_ms)

    def log_file(self, commit_log_offset: int) -> tuple[Mapping, int] | None:
        """Map the commit log file of an offset, for a grant; None when it was removed.

        Raises FileNotFoundError when it was lost, so that its messages are stepped over, StoreCorrupt when it was
        changed in size, which the next opening mends.
        """
        base = self.log_files.base_of(commit_log_offset)
        try:
            return self.log_files.mapping(base), base
        except FileNotFoundError:
            if commit_log_offset < self.state.min_offset:
                return None
            raise

    def queue_file(self, slot: int, queue_offset: int) -> tuple[Mapping, int] | None:
        """Map the consume queue file of an entry, for a grant; None when it was removed. Raises StoreCorrupt."""
        consume_queue = self.consume_queues[self.topics.queue(slot)]
        first = consume_queue.first_entry_of(queue_offset)
        base = first * layout.CONSUME_QUEUE_ENTRY.size
        try:
            return consume_queue.files.mapping(base), first
        except FileNotFoundError:
            if queue_offset < max(self.oldest(slot), self.compaction.log_low(self.topics.queue(slot))):
                return None
            raise StoreCorrupt(consume_queue.files.path(base), 0, "the file is missing") from None

    def oldest(self, slot: int) -> int:
        """Return the queue offset of the oldest message that was not removed, for a grant."""
        return self.retention.oldest(self.topics.queue(slot))

    def read(self, commit_log_offset: int) -> ReceivedMessage:
        """Return the message at an offset of the commit log. Raises MessageExpired, StoreCorrupt."""
        self.check_usable()
        try:
            return self._limited(commit_log.read(self.log_files, commit_log_offset))
        except StoreCorrupt:
            if commit_log_offset >= self.state.min_offset:
                raise
        raise MessageExpired(
            f"the record at {commit_log_offset} was removed: the log begins at {self.state.min_offset} now"
        )

    def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        """Return a message by its place in a queue, below the max offset. Raises MessageExpired, StoreCorrupt."""
        self.check_usable()
        if (found := self._compacted_message(queue, queue_offset)) is not None:
            return found
        consume_queue = self.consume_queues[queue]
        if queue_offset >= self.topics.min_offset(queue):
            try:
                return self.read(consume_queue.entry(queue_offset).commit_log_offset)
            except FileNotFoundError:
                if queue_offset >= self.oldest(self.topics.slot(queue)):
                    first = consume_queue.first_entry_of(queue_offset)
                    path = consume_queue.files.path(first * layout.CONSUME_QUEUE_ENTRY.size)
                    position = (queue_offset - first) * layout.CONSUME_QUEUE_ENTRY.size
                    raise StoreCorrupt(path, position, "the file is missing") from None
        raise MessageExpired(
            f"message {queue_offset} of {queue} was removed: the queue begins at {self.topics.min_offset(queue)} now"
        )

    def _compacted_message(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage | None:
        """Return a message from below the begin of the log, None when it is to be looked for there."""
        if not self.topics.is_compact(queue.topic) or queue_offset >= self.compaction.log_low(queue):
            return None
        found_at, found, _ = self.compaction.look(queue, queue_offset)
        if found_at > queue_offset or found is None:
            raise MessageExpired(f"message {queue_offset} of {queue} was compacted: a later one has its key")
        return found

    def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        """Return a message by its id, the unique one or the offset message id; None when there is none.

        Without ``topic`` a unique id is looked for in every topic; that of a message in a batch gives this message.
        The index is brought up to date first: raises StoreFull when there is no room for it, and StoreBusy.
        """
        self.check_usable()
        found = query.by_offset_id(self.log_files, self._published(), message_id)
        if found is not None and (topic is None or found.topic == topic):
            return self._limited(found)
        self.build_index()
        # What was delivered late is found where it was delivered to, and only before that where it waits.
        topics = sorted(self.topics.topics(), key=_QUEUES_OF_WAITING.__contains__) if topic is None else [topic]
        limit = self.config.max_opened_body_bytes
        return query.by_unique_key(self.log_files, self.index_files, self._published(), topics, message_id, limit)

    def messages_by_key(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = query.END_OF_TIME, limit: int = 64
    ) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages of a topic that have a key and were stored in a time, the newest first.

        ``begin_ms`` and ``end_ms`` are included. Damaged messages are passed over. The index is brought up to date
        first: raises StoreFull when there is no room for it, and StoreBusy.
        """
        self.check_usable()
        self.build_index()
        stored, opened_to = (begin_ms, end_ms), self.config.max_opened_body_bytes
        found = query.by_key(self.log_files, self.index_files, self._published(), topic, key, stored, opened_to)
        return list(islice(found, limit))

    def queue_offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at a time or later; the max offset when there is none.

        Raises UnknownTopic.
        """
        self.check_usable()
        known = range(self.topics.min_offset(queue), self.topics.max_offset(queue))
        if self.topics.is_compact(queue.topic):
            known = range(max(known.start, self.compaction.log_low(queue)), known.stop)
        return query.offset_by_time(self.log_files, self.consume_queues[queue], known, timestamp_ms)

    def build_index(self) -> None:
        """Bring the index up to date. Raises StoreFull, StoreBusy, LimitReached, DiskFailed."""
        with store_errors(f"{self.index_files.directory} cannot be written"):
            self._index.catch_up()

    def settle_appends(self) -> int:
        """Finish or undo the append of a process that died in it; return the end of the log then.

        All that this process has appended stands below. Raises StoreBusy, StoreCorrupt, LimitReached.
        """
        self.check_usable()
        if self.state.append_stage != IDLE:
            self._append_files().repair()
        return self.state.published_to

    def _limited(self, message: ReceivedMessage) -> ReceivedMessage:
        return message.limited_to(self.config.max_opened_body_bytes)

    def _published(self) -> range:
        return range(self.state.min_offset, self.state.published_to)

    def persist_offsets(self) -> None:
        """Write ``consumerOffset.json`` from the group-queue table."""
        with self.lock.held(TOPIC_BYTE):
            table: dict[tuple[str, str], dict[int, int]] = {}
            for slot in self.groups:
                queue = self.topics.queue(slot.queue_slot)
                table.setdefault((queue.topic, slot.group), {})[queue.queue_id] = slot.committed_offset
            if table:
                self.state.offsets_digest = config_file.write_consumer_offsets(self.root, table, self._announce_digest)

    def persist_schedule(self) -> None:
        """Write ``delayOffset.json``. Raises StoreFull, StorePoisoned, NotFlushed."""
        self.schedule.persist(self.flusher.wait_until_flushed)

    def persist_timer(self) -> None:
        """Write ``timer.done``. Raises StoreFull, StorePoisoned, NotFlushed."""
        self.timer.persist()

    def _delayed_appender(self) -> Appender:
        """What delivers messages that waited, to topics that are there and to those of which only messages wait."""
        return self.appender(self.topics.queues, lambda body: bytes(str(body), "utf-8"), prepare=False)

    def prepare_next_file(self) -> None:
        """Make the commit log file that the next roll needs. Raises StoreFull."""
        following = self.log_files.base_of(self.state.published_to) + self.log_files.file_bytes
        with store_errors(f"{self.log_files.path(following)} cannot be made"):
            if self.log_files.bases():  # an empty store needs none yet
                is_new = self.log_files.allocate(following)
                if is_new and self.config.warm_mapped_files:
                    map_file(self.log_files.path(following), self.log_files.file_bytes).populate()
                self.state.allocated_to = following + self.log_files.file_bytes

    def close(self) -> None:
        """Leave the store; the last process leaves it clean. Closing twice, or in a forked child, does nothing.

        Raises StoreFull, StorePoisoned, LimitReached, DiskFailed or StoreBusy when the last one could not leave it
        clean: it has left nevertheless, and the next opening recovers.
        """
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self.once.close()
        for preparer in self._preparers:
            preparer.close()
        self.compaction.close()
        if self.housekeeper is not None:
            self.housekeeper.close()
        self._releaser.close()
        try:
            with (
                store_errors(f"{self.root} cannot be closed in order"),
                self.lock.held(GATE_BYTE, _OPEN_TIMEOUT_S),
            ):
                if self.lock.try_exclusive(BROKER_BYTE):
                    self._close_last()
        finally:
            self._mappings.cold.clear()
            self.lock.close()

    def _close_last(self) -> None:
        """Nobody else has the store open: make everything durable, then say so."""
        if self.state.poisoned:
            return  # what the disk holds is not known: the next opening recovers
        repair(self.state, self.log_files, self.consume_queues, self.topics)
        self.flusher.wait_until_flushed(self.state.published_to)
        self.flusher.flush_queues()
        self.transactions.finish()
        self.persist_offsets()
        self.persist_schedule()
        self.persist_timer()
        self._close_index()
        self.flusher.write_checkpoint()
        reach(CrashPoint.CLOSE_CHECKPOINTED)
        for base in self.log_files.bases():
            if base > self.state.published_to:
                self.log_files.remove(base)
        (self.root / ABORT).unlink(missing_ok=True)

    def _close_index(self) -> None:
        """Leave a whole index to a broker, which adds only what it dispatches itself."""
        if not self.config.message_index:
            return
        try:
            self._index.catch_up()
        except StoreFull as error:
            _log.warning("%s: the index is not up to date: %s", self.root, error)
        newest = self.index_files.newest()
        if newest is not None:
            self.flusher.flush_index(self.index_files, newest)
            self.state.index_timestamp = newest.header.end_timestamp

    def _start_housekeeper(self) -> Housekeeper:
        config = self.config
        tasks: dict[Callable[[], None], int | Every] = {
            self.flush_timed: config.flush.interval_ms,
            self.flush_log: config.flush.thorough_interval_ms,
            self.flush_queues_timed: QUEUES_INTERVAL_MS,
            self.flush_thorough: config.flush.queues_interval_ms,
            self.persist_offsets: config.offset_persist_interval_ms,
            self.persist_schedule: PERSIST_INTERVAL_MS,
            self.persist_timer: PERSIST_INTERVAL_MS,
            self.transactions.check: config.transactions.check_interval_ms,
            self.disk.look: Every(LOOK_INTERVAL_MS, first_after_ms=0),
            self.retention.run: Every(config.retention.interval_ms, FIRST_RUN_AFTER_MS),
            self.compaction.run: config.compaction.interval_ms,
        }
        if config.message_index:
            tasks[self.build_index] = _INDEX_INTERVAL_MS
        return Housekeeper(
            self.state,
            self.lock,
            tasks,
            self.prepare_next_file,
            {"schedule": self.schedule.run, "timer": self.timer.run},
            lambda: self.state.signal_arrival(timer.LANE),
        )

    def flush_timed(self) -> None:
        """Flush when enough pages are dirty, and record it."""
        if self.flusher.flush(LEAST_PAGES):
            self.flusher.write_checkpoint()

    def flush_log(self) -> None:
        """Flush the log however little is dirty, and record it."""
        self.flusher.flush()
        self.flusher.write_checkpoint()

    def flush_queues_timed(self) -> None:
        """Flush the consume queues with enough dirty pages."""
        self.flusher.flush_queues(QUEUES_LEAST_PAGES)

    def flush_thorough(self) -> None:
        """Flush whatever there is, consume queues too, and record it."""
        self.flusher.flush()
        self.flusher.flush_queues()
        self.flusher.write_checkpoint()

    def _announce_digest(self, digest: int) -> None:
        # Whoever wrote it last may have died before it could say so.
        self.state.offsets_digest = config_file.consumer_offsets_digest(self.root)
        self.state.offsets_digest_next = digest

    def _rolled(self) -> None:
        self.state.words.signal(layout.RUNTIME_HEADER.at["prepare_word"])
