"""Message store: wires the parts. Open, append, read, take, close.

Opening (all of it under the gate byte of the lock file): who can take byte 0 exclusively is alone, recovers the
directory, builds the runtime file, creates ``abort`` and keeps the byte shared for the life of the process. Who can
take it only shared attaches. Who cannot even do that meets a RocketMQ broker. Closing: the last one flushes, writes
the checkpoint and ``consumerOffset.json``, and removes ``abort``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from store import checkpoint, commit_log, config_file, index_file, layout, query, recovery, shared_state
from store._kernel import Appender, Mapping, QueueGrant, ReceivedMessage, Route, TagSet
from store.appending import AppendFiles, repair
from store.config import StoreConfig
from store.config_file import StoreSettings
from store.consume_queue import ConsumeQueues
from store.crash_points import CrashPoint, reach
from store.dispatch import IndexDispatch
from store.errors import ConfigMismatch, StoreClosed, StoreCorrupt, StoreFull, StoreInUse, StoreUnusable
from store.file_lock import BROKER_BYTE, GATE_BYTE, TOPIC_BYTE, LockFile
from store.file_queue import FileQueue, MappingCache
from store.flush import Flusher
from store.group_table import GroupQueueSlot, GroupTable
from store.housekeeper import Housekeeper
from store.index_file import IndexFiles
from store.message_queue import MessageQueue
from store.preparer import Preparer
from store.recovery import ABORT, Recovered
from store.shared_state import SharedState, process_start_unique, queue_slot_at
from store.topic_table import TopicTable, queues_of

_log = logging.getLogger(__name__)

_HOST = bytes((127, 0, 0, 1))
_BROKER_PORT = 10_911  # RocketMQ's default; part of every offset message id
_OPEN_TIMEOUT_S = 120.0
_INDEX_INTERVAL_MS = 200


def open_store(
    root: Path | str, config: StoreConfig | None = None, *, create: bool = True, housekeeping: bool = True
) -> MessageStore:
    """Open the store in ``root``, made when it is missing and ``create`` is true.

    ``config=None`` takes the fixed settings that the directory was made with. ``housekeeping=False`` leaves the
    housekeeper's role to other processes.

    Raises StoreUnusable, StoreInUse, ConfigMismatch, StoreCorrupt, StoreFull, StoreBusy.
    """
    path = Path(root)
    _make_root(path, create=create)
    lock = LockFile(path / "lock")
    try:
        with lock.held(GATE_BYTE, _OPEN_TIMEOUT_S):
            settled = _settle_config(path, config)
            state = _enter(path, settled, lock)
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
        mappings = MappingCache(config.max_mapped_files)
        self.log_files, self.consume_queues = _files(root, config, mappings)
        self.topics = TopicTable(root, state, lock, config.lock_timeout_ms)
        self.groups = GroupTable(state, config.lock_timeout_ms)
        self.index_files = IndexFiles(root, config.index_slots, config.index_entries, mappings)
        self._index = IndexDispatch(state, lock, self.log_files, self.index_files)
        self.flusher = Flusher(root, state, self.log_files, self.consume_queues, self.topics, config.lock_timeout_ms)
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
            queues = make_topic(topic)
            return Route(topic, list(queues), [self.topics.slot(queue) for queue in queues])

        files = AppendFiles(
            self.state, self.log_files, self.consume_queues, self.topics, self.config.lock_timeout_ms, self._rolled
        )
        appender = Appender(
            self.state.mapping,
            files,
            make_route,
            encode_body,
            log_file_bytes=self.config.commit_log_file_bytes,
            entries_per_file=self.config.consume_queue_file_entries,
            max_body_bytes=self.config.max_body_bytes,
            timeout_ms=self.config.lock_timeout_ms,
            queue_table_at=layout.QUEUE_TABLE_AT,
            queue_slot_size=layout.QUEUE_SLOT.size,
            born_host=_HOST + (0).to_bytes(4, "big"),
            store_host=_HOST + _BROKER_PORT.to_bytes(4, "big"),
            unique_prefix=process_start_unique(),
        )
        if prepare:
            self._preparers.append(Preparer(self.state, self.log_files, appender))
        return appender

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
            log_file_bytes=self.config.commit_log_file_bytes,
            entries_per_file=self.config.consume_queue_file_entries,
            timeout_ms=self.config.lock_timeout_ms,
        )

    def log_file(self, commit_log_offset: int) -> tuple[Mapping, int]:
        """Map the commit log file of an offset, for a grant. Raises StoreCorrupt when it is missing."""
        base = self.log_files.base_of(commit_log_offset)
        try:
            return self.log_files.mapping(base), base
        except FileNotFoundError:
            raise StoreCorrupt(self.log_files.path(base), commit_log_offset - base, "the file is missing") from None

    def queue_file(self, slot: int, queue_offset: int) -> tuple[Mapping, int]:
        """Map the consume queue file of an entry, for a grant. Raises StoreCorrupt when it is missing."""
        consume_queue = self.consume_queues[self.topics.queue(slot)]
        first = consume_queue.first_entry_of(queue_offset)
        base = first * layout.CONSUME_QUEUE_ENTRY.size
        try:
            return consume_queue.files.mapping(base), first
        except FileNotFoundError:
            raise StoreCorrupt(consume_queue.files.path(base), 0, "the file is missing") from None

    def read(self, commit_log_offset: int) -> ReceivedMessage:
        """Return the message at an offset of the commit log. Raises StoreCorrupt."""
        self.check_usable()
        return commit_log.read(self.log_files, commit_log_offset)

    def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        """Return a message by its place in a queue, which must be between min and max offset. Raises StoreCorrupt."""
        return self.read(self.consume_queues[queue].entry(queue_offset).commit_log_offset)

    def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        """Return a message by its id, the unique one or the offset message id; None when there is none.

        Without ``topic`` a unique id is looked for in every topic. The index is brought up to date first: raises
        StoreFull when there is no room for it, and StoreBusy.
        """
        self.check_usable()
        found = query.by_offset_id(self.log_files, self._published(), message_id)
        if found is not None and (topic is None or found.topic == topic):
            return found
        self._index.catch_up()
        topics = self.topics.topics() if topic is None else [topic]
        return query.by_unique_key(self.log_files, self.index_files, self._published(), topics, message_id)

    def messages_by_key(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = query.END_OF_TIME, limit: int = 64
    ) -> list[ReceivedMessage]:
        """Return up to ``limit`` messages of a topic that have a key and were stored in a time, the newest first.

        ``begin_ms`` and ``end_ms`` are included. Damaged messages are passed over. The index is brought up to date
        first: raises StoreFull when there is no room for it, and StoreBusy.
        """
        self.check_usable()
        self._index.catch_up()
        found = query.by_key(self.log_files, self.index_files, self._published(), topic, key, (begin_ms, end_ms))
        return list(islice(found, limit))

    def queue_offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at a time or later; the max offset when there is none.

        Raises UnknownTopic.
        """
        self.check_usable()
        known = range(self.topics.min_offset(queue), self.topics.max_offset(queue))
        return query.offset_by_time(self.log_files, self.consume_queues[queue], known, timestamp_ms)

    def build_index(self) -> None:
        """Bring the index up to date. Raises StoreFull, StoreBusy."""
        self._index.catch_up()

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

    def prepare_next_file(self) -> None:
        """Make the commit log file that the next roll needs. Raises StoreFull."""
        following = self.log_files.base_of(self.state.published_to) + self.log_files.file_bytes
        if self.log_files.bases():  # an empty store needs none yet
            self.log_files.allocate(following)
            self.state.allocated_to = following + self.log_files.file_bytes

    def close(self) -> None:
        """Leave the store; the last process leaves it clean. Closing twice, or in a forked child, does nothing."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        for preparer in self._preparers:
            preparer.close()
        if self.housekeeper is not None:
            self.housekeeper.close()
        try:
            with self.lock.held(GATE_BYTE, _OPEN_TIMEOUT_S):
                if self.lock.try_exclusive(BROKER_BYTE):
                    self._close_last()
        finally:
            self.lock.close()

    def _close_last(self) -> None:
        """Nobody else has the store open: make everything durable, then say so."""
        if self.state.poisoned:
            return  # what the disk holds is not known: the next opening recovers
        repair(self.state, self.log_files, self.consume_queues, self.topics)
        self.flusher.wait_until_flushed(self.state.published_to)
        self.flusher.flush_queues()
        self.persist_offsets()
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
            self.index_files.sync(newest)
            self.state.index_timestamp = newest.header.end_timestamp

    def _start_housekeeper(self) -> Housekeeper:
        config = self.config
        tasks = {
            self.flush_timed: config.flush_interval_ms,
            self.flush_thorough: config.flush_thorough_interval_ms,
            self.persist_offsets: config.offset_persist_interval_ms,
        }
        if config.message_index:
            tasks[self.build_index] = _INDEX_INTERVAL_MS
        return Housekeeper(self.state, self.lock, tasks, self.prepare_next_file)

    def flush_timed(self) -> None:
        """Flush when enough pages are dirty, and record it."""
        if self.flusher.flush(self.config.flush_least_pages):
            self.flusher.write_checkpoint()

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


def _files(root: Path, config: StoreConfig, mappings: MappingCache) -> tuple[FileQueue, ConsumeQueues]:
    log_files = FileQueue(root / commit_log.DIRECTORY, config.commit_log_file_bytes, scratch=root, mappings=mappings)
    return log_files, ConsumeQueues(root, config.consume_queue_file_bytes, mappings)


def _make_root(root: Path, *, create: bool) -> None:
    try:
        if create:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not root.is_dir():
            raise StoreUnusable(f"{root} is not a directory: give the directory of a store")
        if not create and not (root / config_file.STORE_SETTINGS_FILE).exists() and not (root / "commitlog").exists():
            raise StoreUnusable(f"{root} holds no store: it is made by the first producer or worker that opens it")
        if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
            raise StoreUnusable(f"{root} is not readable and writable by this user: change its owner or mode")
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise StoreUnusable(f"{root} cannot be used as a store: {error.strerror}") from error
    except OSError as error:
        raise StoreUnusable(f"{root} cannot be made: {error.strerror}") from error


def _settle_config(root: Path, config: StoreConfig | None) -> StoreConfig:
    """Return the settings to work with. Records the fixed ones of a new store. Raises ConfigMismatch."""
    wanted = config if config is not None else StoreConfig()
    recorded = config_file.read_store_settings(root) or _settings_of_a_broker(root, config)
    asked = _fixed(wanted)
    if recorded is None:
        recorded = asked
    if config is not None and recorded != asked:
        raise ConfigMismatch(f"{root} was made with {recorded}, asked for {asked}: open it with config=None")
    if not (root / config_file.STORE_SETTINGS_FILE).exists():
        config_file.write_store_settings(root, recorded)
    largest_body = recorded.commit_log_file_bytes - layout.MAX_RECORD_OVERHEAD - layout.BLANK_RECORD.size
    try:
        return replace(
            wanted,
            **asdict(recorded),
            max_body_bytes=min(wanted.max_body_bytes, largest_body),
        )
    except ValueError as error:
        raise ConfigMismatch(f"{root} was made with settings that this version cannot use: {error}") from error


def _fixed(config: StoreConfig) -> StoreSettings:
    return StoreSettings(
        config.commit_log_file_bytes, config.consume_queue_file_entries, config.index_slots, config.index_entries
    )


def _settings_of_a_broker(root: Path, config: StoreConfig | None) -> StoreSettings | None:
    """Read the fixed settings off the files of a store that a RocketMQ broker made; None when there are none."""
    sizes = {path.stat().st_size for path in (root / commit_log.DIRECTORY).glob("[0-9]" * layout.FILE_NAME_DIGITS)}
    if not sizes:
        return None
    queue_files = (root / "consumequeue").glob("*/*/" + "[0-9]" * layout.FILE_NAME_DIGITS)
    queue_sizes = {path.stat().st_size for path in queue_files}
    entry_size = layout.CONSUME_QUEUE_ENTRY.size
    if len(sizes) > 1 or len(queue_sizes) > 1:
        raise ConfigMismatch(f"{root} holds files of several sizes: {sorted(sizes | queue_sizes)} bytes")
    queue_bytes = queue_sizes.pop() if queue_sizes else StoreConfig().consume_queue_file_bytes
    index = (config.index_slots, config.index_entries) if config else _index_settings_of_a_broker(root)
    return StoreSettings(sizes.pop(), queue_bytes // entry_size, *index)


def _index_settings_of_a_broker(root: Path) -> tuple[int, int]:
    """Read them off the oldest index file, which has filled up most."""
    files = index_file.paths(root)
    usual = StoreConfig.broker_defaults()
    if not files:
        log_bytes = next((root / commit_log.DIRECTORY).iterdir()).stat().st_size
        usual = usual if log_bytes == usual.commit_log_file_bytes else StoreConfig()
        return usual.index_slots, usual.index_entries
    found = index_file.sizes_in(files[0])
    if found is None:
        raise ConfigMismatch(
            f"{files[0]} has {files[0].stat().st_size} bytes: open the store with the index_slots and index_entries of "
            "its broker [maxHashSlotNum, maxIndexNum], or remove the directory, which is made again"
        )
    return found


def _enter(root: Path, config: StoreConfig, lock: LockFile) -> SharedState:
    """Become one of the processes that have the store open; the first one recovers it."""
    if lock.try_exclusive(BROKER_BYTE):
        state = _recover(root, config, lock)
        (root / ABORT).touch(mode=0o600)
        lock.try_shared(BROKER_BYTE)
        return state
    if lock.try_shared(BROKER_BYTE):
        return shared_state.attach(root)
    pid = lock.holder(BROKER_BYTE)
    raise StoreInUse(f"{root} is open in a RocketMQ broker (process {pid or 'unknown'}): stop it first")


def _recover(root: Path, config: StoreConfig, lock: LockFile) -> SharedState:
    log_files, queues = _files(root, config, MappingCache(config.max_mapped_files))
    timeout_ms = config.lock_timeout_ms
    leftover = shared_state.leftover(root)
    if leftover is not None and recovery.believable(leftover, root):
        repair(leftover, log_files, queues, TopicTable(root, leftover, lock, timeout_ms))
    else:
        leftover = None
    found = recovery.survey(root, log_files, queues, leftover)
    chosen = recovery.plan(found)
    recovered = recovery.apply(chosen, root, log_files, queues)
    for bad in chosen.quarantined:
        _log.error(
            "%s: bytes %d to %d of the commit log are damaged (%s): kept and stepped over",
            root,
            bad.start,
            bad.end,
            bad.reason,
        )
    if leftover is not None and found.same_boot:
        recovered.progress = recovery.progress_of(leftover, TopicTable(root, leftover, lock, timeout_ms), timeout_ms)
    else:
        recovered.progress = recovery.progress_on_disk(root)
    return _build(root, config, lock, recovered, log_files, queues)


def _build(
    root: Path, config: StoreConfig, lock: LockFile, recovered: Recovered, log_files: FileQueue, queues: ConsumeQueues
) -> SharedState:
    """Build the runtime file from what recovery found, with everything durable that it wrote."""
    state = shared_state.build(root, config.commit_log_file_bytes, config.consume_queue_file_bytes)
    log_end = recovered.plan.log_end
    state.min_offset = recovered.plan.log_begin
    state.published_to = state.written_to = log_end
    state.last_store_timestamp = recovered.last_store_timestamp
    state.indexed_to = recovered.plan.indexed_to
    state.index_timestamp = checkpoint.read(root)[0].index_timestamp
    ranges = recovered.plan.dispatch_ranges
    state.flushed_to = ranges[0][0] if ranges else log_end
    topics = TopicTable(root, state, lock, config.lock_timeout_ms)
    declared = [
        MessageQueue(topic, queue_id)
        for topic, settings in config_file.read_topics(root).items()
        for queue_id in range(queues_of(settings))
    ]
    topics.add(sorted({*declared, *recovered.queues}), recovered.queues)
    _restore_groups(state, topics, recovered, config.lock_timeout_ms)
    state.offsets_digest = state.offsets_digest_next = config_file.consumer_offsets_digest(root)
    flusher = Flusher(root, state, log_files, queues, topics, config.lock_timeout_ms)
    if ranges:
        flusher.wait_until_flushed(log_end)
        flusher.flush_queues()
        flusher.write_checkpoint()
    shared_state.finish(state, root)
    return state


def _restore_groups(state: SharedState, topics: TopicTable, recovered: Recovered, timeout_ms: int) -> None:
    groups = GroupTable(state, timeout_ms)
    known = set(topics.all_queues())
    for (group, queue), progress in recovered.progress.items():
        if queue in known:
            low, high = recovered.queues.get(queue, (0, 0))
            committed = min(max(progress.committed_offset, low), high)
            slot = groups.find_or_add(group, topics.slot(queue), committed)
            bits = progress.acknowledged if committed == progress.committed_offset else 0
            slot.restore(committed, bits, progress.epoch)
