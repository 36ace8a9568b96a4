"""Message store: wires the parts. Open, append, read, take, close.

:mod:`rmqclient.store.recovery.opening` says what opening does. Closing: the last process flushes, writes the checkpoint
and ``consumerOffset.json``, brings the index up to date, and removes ``abort``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Generic, ParamSpec, TypeVar

from rmqclient.store import clock, layout
from rmqclient.store.append.admission import Waits
from rmqclient.store.append.appending import repair
from rmqclient.store.append.releaser import REMOVED_WORD, Releaser
from rmqclient.store.append.replica_log import ReplicaLog
from rmqclient.store.append.replicas import Replicas
from rmqclient.store.closing import Closing
from rmqclient.store.config import StoreConfig
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import (
    QueueError,
    StoreClosed,
    StoreFull,
    StoreReplaced,
    store_errors,
)
from rmqclient.store.files.file_lock import BROKER_BYTE, GATE_BYTE, TOPIC_BYTE, LockFile
from rmqclient.store.files.file_queue import MappingCache
from rmqclient.store.files.file_system import check_file_system
from rmqclient.store.handles.appenders import Appenders
from rmqclient.store.handles.grants import Grants
from rmqclient.store.handles.messages import StoredMessages
from rmqclient.store.kernel._kernel import Appender, QueueGrant, RecordReader, TagSet
from rmqclient.store.log.dispatch import IndexDispatch
from rmqclient.store.log.index_file import IndexFiles
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.numbers import check_kind
from rmqclient.store.parts import Parts
from rmqclient.store.recovery.opening import enter, files_of, make_root, settle_config
from rmqclient.store.recovery.recovery import ABORT
from rmqclient.store.runtime.arrivals import ArrivalBell, Bell
from rmqclient.store.runtime.group_table import GroupQueueSlot, GroupTable
from rmqclient.store.runtime.members import MemberTable
from rmqclient.store.runtime.moved_clock import MovedClock
from rmqclient.store.runtime.passes import Passes
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.runtime.worker_table import WorkerTable
from rmqclient.store.settings.disk import LOOK_INTERVAL_MS, Disk
from rmqclient.store.settings.replica_mark import Kind, ReplicaMark, check_primary, write_mark
from rmqclient.store.settings.topic_table import TopicTable
from rmqclient.store.threads.logs import Log
from rmqclient.store.threads.patched import check_unpatched
from rmqclient.store.upkeep.compaction import Compaction
from rmqclient.store.upkeep.consumer_offsets import ConsumerOffsets
from rmqclient.store.upkeep.flush import QUEUES_INTERVAL_MS, Flusher
from rmqclient.store.upkeep.housekeeper import Housekeeper
from rmqclient.store.upkeep.retention import FIRST_RUN_AFTER_MS, Retention
from rmqclient.store.upkeep.timetable import Every
from rmqclient.store.upkeep.unsharing import Unsharing
from rmqclient.store.waiting.once import Once
from rmqclient.store.waiting.schedule import PERSIST_INTERVAL_MS, Schedule
from rmqclient.store.waiting.timer import Timer
from rmqclient.store.waiting.transaction import Transactions

_log = Log(__name__)

_OPEN_TIMEOUT_S = 120.0
_INDEX_INTERVAL_MS = 200

P = ParamSpec("P")
T = TypeVar("T")


def open_store(
    root: Path | str,
    config: StoreConfig | None = None,
    *,
    create: bool = True,
    housekeeping: bool = True,
    settling: bool = False,
) -> MessageStore:
    """Open the store in ``root``, made when it is missing and ``create`` is true.

    With ``config=None`` the store has the fixed settings that its directory was made with. ``housekeeping=False``
    leaves the housekeeper's role to other processes. ``settling`` is for what gives a primary back what it lost: such
    a store takes no message until then, and is not opened otherwise.

    Raises TypeError for another kind of settings, StoreUnusable, StoreInUse, ConfigMismatch, StoreCorrupt, StoreFull,
    StoreBusy, LimitReached, DiskFailed, StoreUnsettled.
    """
    check_unpatched()
    check_kind("config", config, StoreConfig)
    path = Path(root).absolute()  # a process that changes its working directory still means this one
    with store_errors(f"{path} cannot be opened"):
        make_root(path, create=create)
        check_file_system(path, allow_network=config is not None and config.allow_network_file_system)
        lock = LockFile(path / "lock")
        try:
            clock.enter(path, lock)
            try:
                with lock.held(GATE_BYTE, _OPEN_TIMEOUT_S):
                    try:
                        settled = settle_config(path, config)
                        state = enter(path, settled, lock, settling=settling)
                        store = MessageStore(path, settled, state, lock, housekeeping=housekeeping)
                    except BaseException:  # before the gate is given back, as at the end of closing
                        lock.unlock(BROKER_BYTE)
                        raise
            except BaseException:
                clock.leave(lock)
                raise
        except BaseException:
            lock.close()
            raise
    store.start()
    return store


class MessageStore(Closing):
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
        self._is_leaving = False
        self._mappings = MappingCache(config.max_mapped_files, check_in_place=lock.check_in_place)
        self.log_files, self.consume_queues = files_of(root, config, self._mappings)
        self.topics = TopicTable(root, state, lock, config.lock_timeout_ms)
        self._parts = parts = Parts(root, config, state, lock, self.topics, self.log_files, self.consume_queues)
        self.groups = GroupTable(state, config.lock_timeout_ms)
        self.index_files = IndexFiles(root, config.index_slots, config.index_entries, self._mappings)
        self.disk = Disk(root, state, config, Unsharing(parts, self.index_files).look)
        self.flusher = Flusher(parts)
        self.index = IndexDispatch(state, lock, self.log_files, self.index_files, self.flusher.flush_index)
        self.replicas = Replicas(root, state, lock)
        self._appenders = Appenders(parts, self.disk, self.replicas)
        self.compaction = Compaction(parts)
        self._grants = Grants(parts, self.compaction)
        self._taken_back: list[Callable[[], None]] = []
        usable = self._lent(self.check_usable)
        self.messages = StoredMessages(
            parts, self.index_files, self.index, self.compaction, self._grants.oldest, usable
        )
        self._offsets = ConsumerOffsets(parts, self.groups)
        self._wire_waiting()
        self.retention = Retention(
            parts,
            self.index_files,
            self.disk,
            self.compaction,
            before_removal=_nothing if self.is_replica else self.timer.roll_below,
        )
        self._releaser = Releaser(state, self._mappings)
        self._moved_clock = MovedClock(state) if clock.is_movable() else None
        self.disk.enter()
        self.housekeeper = self._make_housekeeper() if housekeeping else None

    def start(self) -> None:
        """Start the threads of the store, outside of the gate: that one fails or hangs is nobody else's matter.

        Raises LimitReached, and has left the store then.
        """
        try:
            for part in (self._releaser, self._moved_clock, self.housekeeper):
                if part is not None:
                    part.start()
        except BaseException:
            with suppress(QueueError):  # the next opening recovers what could not be left in order
                self.close()
            raise

    def _wire_waiting(self) -> None:
        """Make the parts that deliver waiting messages, and the one that sends a message once for a key."""
        parts, oldest, appender = self._parts, self.compaction.oldest, self._lent(self._appender_for_waiting)
        settle, wait_until_flushed = self._lent(self.settle_appends), self.flusher.wait_until_flushed
        self.schedule = Schedule(parts, oldest, appender)
        self.timer = Timer(parts, oldest, appender, self.messages.by_id, wait_until_flushed)
        self.transactions = Transactions(parts, self.groups, oldest, appender, wait_until_flushed)
        self.once = Once(parts, self.index_files, settle=settle, build_index=self._lent(self.index.catch_up))

    def _lent(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return a function for a part of the store, which has it until the store is closed."""
        lent = _Lent(function, self.root)
        self._taken_back.append(lent.end)
        return lent

    def check_usable(self) -> None:
        """Raise StoreClosed after :meth:`close` and in a forked child, StoreReplaced when that was found."""
        if self.lock.replaced:
            raise StoreReplaced(self.lock.replaced)
        if self._closed:
            raise StoreClosed(f"the store in {self.root} was closed")
        if os.getpid() != self._pid:
            raise StoreClosed(f"the store in {self.root} was opened by process {self._pid}: open it again after a fork")

    def check_in_place(self) -> None:
        """Raise StoreReplaced when the directory was removed, renamed or replaced, and end every use of the store.

        Every append to what this process has open is refused from then on, and whoever waits for messages wakes up.
        """
        try:
            self.lock.check_in_place()
        finally:
            if self.lock.replaced:
                self.state.end_replaced()

    @property
    def is_replica(self) -> bool:
        """Whether the store takes nothing of its own: it follows another one, or another one took its place."""
        return bool(self.state.is_replica)

    def check_primary(self) -> None:
        """Raise ReadOnlyReplica when the store takes nothing of its own."""
        check_primary(self.root, is_replica=self.is_replica)

    def fence(self, primary: str, epoch: int) -> int:
        """Take no message any more, for good, because another store has this epoch; return where the log ends.

        Raises StoreFull, StoreBusy: then nothing is fenced yet.
        """
        self.check_usable()
        with self.lock.held(TOPIC_BYTE):
            write_mark(self.root, ReplicaMark(primary, "", clock.wall_ms(), Kind.FENCED, epoch))
            reach(CrashPoint.FENCE_NOTED)
        with self.state.locked(self.state.append_mutex, self.config.lock_timeout_ms):
            self.state.words.set_bits(layout.RUNTIME_HEADER.at["restricted"], layout.RESTRICTED["replica"])
            return self.state.published_to

    def replica_log(self) -> ReplicaLog:
        """Return what appends the log of the primary to a replica, for one process. Raises ValueError, StoreClosed."""
        self.check_usable()
        if not self.is_replica:
            raise ValueError(f"{self.root} is not a replica")
        return ReplicaLog(self._parts)

    def appender(
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
        self.check_usable()
        return self._appenders.appender(make_topic, encode_body, prepare=prepare, admission=admission)

    def end_appender(self, appender: Appender) -> None:
        """End the thread that populates pages for an appender that is used no more; twice does nothing."""
        self._appenders.end(appender)

    def _appender_for_waiting(self) -> Appender:
        self.check_usable()
        return self._appenders.for_waiting()

    def grant(self, slot: GroupQueueSlot, epoch: int, tags: TagSet) -> QueueGrant:
        """Return what takes and acknowledges the messages of one queue under one epoch."""
        self.check_usable()
        return self._grants.grant(slot, epoch, tags)

    def record_reader(self, queue: MessageQueue) -> RecordReader:
        """Return what reads the records of one queue as they stand, for pulls. Raises StoreClosed, UnknownTopic."""
        self.check_usable()
        return self._grants.record_reader(queue)

    def members(self) -> MemberTable:
        """Return the members of all groups, for one consumer or for an onlooker. Raises StoreClosed."""
        self.check_usable()
        return MemberTable(self.root, self.state, self.lock, self.topics, self.groups, self.config.lock_timeout_ms)

    def arrival_bell(self, lane: int | None = None) -> ArrivalBell:
        """Return a bell that senders ring, on a random arrival lane or on this one (0 to 63). Raises StoreClosed."""
        self.check_usable()
        return ArrivalBell(self.state, self.topics, lane)

    def membership_bell(self) -> Bell:
        """Return the bell that rings when members, subscriptions or queues change. Raises StoreClosed."""
        self.check_usable()
        return Bell(self.state.words, layout.RUNTIME_HEADER.at["membership_word"])

    def removal_bell(self) -> Bell:
        """Return the bell that rings after files were removed, whose mappings can be released. Raises StoreClosed."""
        self.check_usable()
        return Bell(self.state.words, REMOVED_WORD)

    def workers(self) -> WorkerTable:
        """Return the workers of all supervisors, for a supervisor, a worker or an onlooker. Raises StoreClosed."""
        self.check_usable()
        return WorkerTable(self.root, self.state, self.lock, self.config.lock_timeout_ms)

    def settle_appends(self) -> int:
        """Finish or undo an append whose process died; return the end of the log after that.

        Every message that this process has appended stands below it. Raises StoreBusy, StoreCorrupt, LimitReached.
        """
        self.check_usable()
        return self._appenders.settle()

    def persist_offsets(self) -> None:
        """Write ``consumerOffset.json`` from the group-queue table."""
        self._offsets.persist()

    def forget_groups(self, groups: Collection[str]) -> None:
        """Forget groups that nobody runs, in shared memory and then on the disk.

        Raises QueueOwned while one has a member, StoreBusy. StoreFull, DiskFailed: they are back after a reboot.
        """
        self.members().forget(groups)
        self._offsets.persist(groups)

    def persist_schedule(self) -> None:
        """Write ``delayOffset.json``. Raises StoreFull, StorePoisoned, NotFlushed."""
        self.schedule.persist(self.flusher.wait_until_flushed)

    def close(self) -> None:
        """Leave the store; the last process leaves it clean. Closing twice, or in a forked child, does nothing.

        If a signal handler raises while this waits for what is under way, call it again.

        Raises StoreFull, StorePoisoned, LimitReached, DiskFailed or StoreBusy when the last process could not leave
        the store clean, and StoreReplaced when its directory is another one now and nothing has said so yet. The
        process has left nevertheless, and the next opening recovers.
        """
        if self._is_leaving or not self.lock.is_open:
            return
        self._is_leaving = self._closed = True
        try:
            self.once.close()
            self._appenders.close()
            self.compaction.close()
            for part in (self.housekeeper, self._releaser, self._moved_clock):
                if part is not None:
                    part.close()
            self._leave()
        finally:
            self._is_leaving = False  # without a call, in which a signal handler may raise once more

    def _part(self) -> None:
        """Undo the circles among the parts: mappings and descriptors then go with the last who has this store."""
        self.schedule.pumps.clear()
        if self.housekeeper is not None:
            self.housekeeper.forget_work()
        for take_back in self._taken_back:
            take_back()

    def _leave(self) -> None:
        try:
            if self.lock.replaced:  # and somebody was told: there is nothing left to do here
                return
            with (
                store_errors(f"{self.root} cannot be closed in order"),
                self.lock.held(GATE_BYTE, _OPEN_TIMEOUT_S),
            ):
                try:
                    if self.lock.try_exclusive(BROKER_BYTE):
                        self._close_last()
                finally:  # before the gate: whoever comes through it next must not meet who has left
                    self.lock.unlock(BROKER_BYTE)
        finally:
            self._mappings.close_files()
            self._part()
            self.lock.close()
            clock.leave(self.lock)

    def _close_last(self) -> None:
        """Make everything durable, then say so. No other process has the store open."""
        if self.state.poisoned:
            return  # what the disk holds is not known: the next opening recovers
        self.state.shut(self.config.lock_timeout_ms)
        repair(self.state, self.log_files, self.consume_queues, self.topics)
        self.flusher.wait_until_flushed(self.state.published_to)
        self.flusher.flush_queues()
        if not self.is_replica:
            self.transactions.finish()
            self.persist_schedule()
            self.timer.persist()
        self.persist_offsets()
        self._close_index()
        self.flusher.write_checkpoint()
        reach(CrashPoint.CLOSE_CHECKPOINTED)
        for base in self.log_files.bases():
            if base > self.state.published_to:
                self.log_files.remove(base)
        (self.root / ABORT).unlink(missing_ok=True)

    def _close_index(self) -> None:
        """Leave a whole index: a broker adds only the messages that it dispatches itself."""
        if not self.config.message_index:
            return
        try:
            self.index.catch_up()
        except StoreFull as error:
            _log.warning("%s: the index is not up to date: %s", self.root, error)
        newest = self.index_files.newest()
        if newest is not None:
            self.flusher.flush_index(self.index_files, newest)
            self.state.index_timestamp = newest.header.end_timestamp

    def _make_housekeeper(self) -> Housekeeper:
        config, check, watched = self.config, self.check_in_place, Passes(self.state).watched
        tasks: dict[Callable[[], None], int | Every] = {
            watched("flushing the log", self.flusher.flush_timed): config.flush.interval_ms,
            watched("flushing all of the log", self.flusher.flush_log): config.flush.thorough_interval_ms,
            watched("flushing the queues", self.flusher.flush_queues_timed): QUEUES_INTERVAL_MS,
            watched("writing the checkpoint", self.flusher.flush_thorough): config.flush.queues_interval_ms,
            watched("writing consumerOffset.json", self.persist_offsets): config.offset_persist_interval_ms,
            watched("looking at the disk", self.disk.look): Every(LOOK_INTERVAL_MS, first_after_ms=0),
            watched("removing old files", self.retention.run): _moved(config.retention.interval_ms, FIRST_RUN_AFTER_MS),
            watched("compacting topics", self.compaction.run): _moved(config.compaction.interval_ms),
        }
        if config.message_index:
            tasks[watched("building the index", self.index.catch_up)] = _INDEX_INTERVAL_MS
        prepare = watched("making the next file of the log", self._appenders.prepare_next_file)
        if self.is_replica:  # its primary delivers what waits, and checks transactions
            return Housekeeper(self.state, self.lock, tasks, prepare, {}, _nothing, check)
        check_ms = config.transactions.check_interval_ms
        tasks |= {
            watched("writing delayOffset.json", self.persist_schedule): PERSIST_INTERVAL_MS,
            watched("writing the progress of the timer", self.timer.persist): PERSIST_INTERVAL_MS,
            watched("checking transactions", self.transactions.check): _moved(check_ms),
        }
        beside = {"schedule": self.schedule.run, "timer": self.timer.run}
        return Housekeeper(self.state, self.lock, tasks, prepare, beside, self.timer.wake, check)


class _Lent(Generic[P, T]):
    """A function of a store for one of its parts, until the store is closed: it raises StoreClosed from then on."""

    def __init__(self, function: Callable[P, T], root: Path) -> None:
        self._function: Callable[P, T] | None = function
        self._root = root

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        function = self._function
        if function is None:
            raise StoreClosed(f"the store in {self._root} was closed")
        return function(*args, **kwargs)

    def end(self) -> None:
        """Take the function back."""
        self._function = None


def _moved(interval_ms: int, first_after_ms: int | None = None) -> Every:
    """Return when a task runs whose work applications wait for, so that a test may move it."""
    return Every(interval_ms, interval_ms if first_after_ms is None else first_after_ms, clock.elapsed_ns)


def _nothing(*_: object) -> None:
    """Do nothing, where a primary delivers or keeps messages that wait."""
