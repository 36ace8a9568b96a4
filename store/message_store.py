"""Message store: one directory, opened. It builds the parts of a store, and takes them apart in order.

:mod:`rmqclient.store.recovery.opening` says what opening does. Closing: the last process flushes, writes the checkpoint
and ``consumerOffset.json``, brings the index up to date, and removes ``abort``.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqclient.store import clock, layout
from rmqclient.store.append.appending import repair
from rmqclient.store.append.releaser import REMOVED_WORD, Releaser
from rmqclient.store.append.replicas import LogSending, Replicas
from rmqclient.store.closing import Closing
from rmqclient.store.config import StoreConfig
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import (
    QueueError,
    StoreFull,
    store_errors,
)
from rmqclient.store.files.file_lock import BROKER_BYTE, GATE_BYTE, TOPIC_BYTE, LockFile
from rmqclient.store.files.file_queue import MappingCache
from rmqclient.store.files.file_system import check_file_system
from rmqclient.store.handles.appenders import Appenders
from rmqclient.store.handles.grants import Grants
from rmqclient.store.handles.messages import StoredMessages
from rmqclient.store.history.history import History
from rmqclient.store.life import Life
from rmqclient.store.log.dispatch import IndexDispatch
from rmqclient.store.log.index_file import IndexFiles
from rmqclient.store.marks import Marks
from rmqclient.store.native_threads import check_native
from rmqclient.store.numbers import check_kind
from rmqclient.store.parts import Parts
from rmqclient.store.recovery.opening import enter, files_of, make_root, settle_config
from rmqclient.store.recovery.recovery import ABORT
from rmqclient.store.runtime.arrivals import ArrivalBell, Bell
from rmqclient.store.runtime.group_table import GroupTable
from rmqclient.store.runtime.members import MemberTable
from rmqclient.store.runtime.passes import Passes
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.settings.disk import Disk
from rmqclient.store.settings.replica_mark import Kind, ReplicaMark, write_mark
from rmqclient.store.settings.topic_table import TopicTable
from rmqclient.store.threads.logs import Log
from rmqclient.store.upkeep.compaction import Compaction
from rmqclient.store.upkeep.consumer_offsets import ConsumerOffsets
from rmqclient.store.upkeep.flush import Flusher
from rmqclient.store.upkeep.housekeeper import Housekeeper
from rmqclient.store.upkeep.retention import Retention
from rmqclient.store.upkeep.tasks import Tasks, tasks_of, tasks_of_history, tasks_of_waiting
from rmqclient.store.upkeep.unsharing import Unsharing
from rmqclient.store.waiting.once import Once
from rmqclient.store.waiting.schedule import Schedule
from rmqclient.store.waiting.timer import Timer
from rmqclient.store.waiting.transaction import Transactions

if TYPE_CHECKING:  # most processes need none of these
    from rmqclient.store.runtime.moved_clock import MovedClock
    from rmqclient.store.runtime.worker_table import WorkerTable

_log = Log(__name__)

_OPEN_TIMEOUT_S = 120.0


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
    check_native()
    check_kind("config", config, StoreConfig)
    path = Path(root).absolute()  # a process that changes its working directory still means this one
    with store_errors(f"{path} cannot be opened"):
        make_root(path, create=create)
        path = path.resolve()  # a link that is set to another directory later does not move the store of this process
        check_file_system(path, allow_network=config is not None and config.allow_network_file_system)
        lock = LockFile(path / "lock")
        try:
            clock.enter(path, lock)
            try:
                with lock.held(GATE_BYTE, _OPEN_TIMEOUT_S):
                    try:
                        settled = settle_config(path, config)
                        was_killed = (path / ABORT).exists() and lock.holder(BROKER_BYTE) is None
                        state = enter(path, settled, lock, settling=settling)
                        store = _built(path, settled, state, lock, housekeeping=housekeeping)
                    except BaseException:  # before the gate is given back, as at the end of closing
                        lock.unlock(BROKER_BYTE)
                        raise
            except BaseException:
                clock.leave(lock)
                raise
        except BaseException:
            lock.close()
            raise
    _start(store)
    if was_killed:
        store.marks.write("opened", "store", "the last processes were killed, or the machine went down", author="")
    return store


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, repr=False, kw_only=True)
class MessageStore(Parts, Closing):
    """An open store, for one process: its parts. A context manager; :func:`open_store` makes it."""

    life: Life
    """Whether the store may be used: asked by whatever must not go on after ``close``, or in a forked child."""
    mappings: MappingCache
    """Every mapped file."""
    groups: GroupTable
    """The progress of each group in each queue."""
    appenders: Appenders
    """What producers append with."""
    grants: Grants
    """What consumers take with, and what answers pulls."""
    messages: StoredMessages
    """Messages by place, id, key and time."""
    replicas: Replicas
    """How far followers have the log, for sends that wait for them."""
    log_sending: LogSending
    """The role of sending the log to followers."""
    index_files: IndexFiles
    index: IndexDispatch
    """Adds to the index what was published."""
    once: Once
    """Messages sent once for a key."""
    schedule: Schedule
    """Messages that wait for a delay level."""
    timer: Timer
    """Messages that wait for any other time."""
    transactions: Transactions
    """Half messages, and what becomes of them."""
    disk: Disk
    """How full the disk is."""
    flusher: Flusher
    """Makes the log and the queues durable, and writes the checkpoint."""
    offsets: ConsumerOffsets
    """``consumerOffset.json``."""
    retention: Retention
    """Removes the oldest files."""
    compaction: Compaction
    """Keeps the latest message of each key of a compact topic."""
    history: History
    """Writes down what each group has done."""
    marks: Marks
    """What was done to the store, and by whom."""
    housekeeper: Housekeeper | None
    """None if this process leaves the role to others."""
    threads: tuple[Releaser | MovedClock | Housekeeper, ...]
    """What runs from the opening on."""

    def members(self) -> MemberTable:
        """Return the members of all groups, for one consumer or for an onlooker. Raises StoreClosed."""
        self.life.check_usable()
        return MemberTable(self.root, self.state, self.lock, self.topics, self.groups, self.config.lock_timeout_ms)

    def arrival_bell(self, lane: int | None = None) -> ArrivalBell:
        """Return a bell that senders ring, on a random arrival lane or on this one (0 to 63). Raises StoreClosed."""
        self.life.check_usable()
        return ArrivalBell(self.state, self.topics.slot, lane)

    def membership_bell(self) -> Bell:
        """Return the bell that rings when members, subscriptions or queues change. Raises StoreClosed."""
        self.life.check_usable()
        return Bell(self.state.words, layout.RUNTIME_HEADER.at["membership_word"])

    def removal_bell(self) -> Bell:
        """Return the bell that rings after files were removed, whose mappings can be released. Raises StoreClosed."""
        self.life.check_usable()
        return Bell(self.state.words, REMOVED_WORD)

    def workers(self) -> WorkerTable:
        """Return the workers of all supervisors, for a supervisor, a worker or an onlooker. Raises StoreClosed."""
        self.life.check_usable()
        from rmqclient.store.runtime.worker_table import WorkerTable  # noqa: PLC0415 - for supervisors and workers

        return WorkerTable(self.root, self.state, self.lock, self.config.lock_timeout_ms)

    def forget_groups(self, groups: Collection[str]) -> None:
        """Forget groups, in shared memory and then on the disk.

        Raises QueueOwned while one has a member, StoreBusy. After StoreFull or DiskFailed, a reboot brings them back.
        """
        self.members().forget(groups)
        self.offsets.persist(groups)

    def fence(self, primary: str, epoch: int) -> int:
        """Refuse messages from now on, for good, because another store has this epoch; return where the log ends.

        Raises StoreFull, StoreBusy: then nothing is fenced yet.
        """
        self.life.check_usable()
        with self.lock.held(TOPIC_BYTE):
            write_mark(self.root, ReplicaMark(primary, "", clock.wall_ms(), Kind.FENCED, epoch))
            reach(CrashPoint.FENCE_NOTED)
        with self.state.locked(self.state.append_mutex, self.config.lock_timeout_ms):
            self.state.words.set_bits(layout.RUNTIME_HEADER.at["restricted"], layout.RESTRICTED["replica"])
            return self.state.published_to

    def close(self) -> None:
        """Leave the store; the last process leaves it clean. Closing twice, or in a forked child, does nothing.

        If a signal handler raises while this waits for what is under way, call it again.

        Raises StoreFull, StorePoisoned, LimitReached, DiskFailed or StoreBusy when the last process could not leave
        the store clean, and StoreReplaced when its directory is another one now and nothing has said so yet. The
        process has left nevertheless, and the next opening recovers.
        """
        life = self.life
        if life.is_leaving or not self.lock.is_open:
            return
        life.is_leaving = life.is_closed = True
        try:
            self.once.close()
            self.appenders.close()
            self.compaction.close()
            for thread in reversed(self.threads):
                thread.close()
            _leave(self)
        finally:
            life.is_leaving = False  # without a call, in which a signal handler may raise once more


def _built(root: Path, config: StoreConfig, state: SharedState, lock: LockFile, *, housekeeping: bool) -> MessageStore:
    """Build the parts of a store, each of the parts before it. None of them runs yet."""
    life = Life(root, state, lock)
    mappings = MappingCache(config.max_mapped_files, check_in_place=life.check_in_place)
    log_files, consume_queues = files_of(root, config, mappings)
    topics = TopicTable(root, state, lock, config.lock_timeout_ms)
    parts = Parts(root, config, state, lock, topics, log_files, consume_queues)

    index_files = IndexFiles(root, config.index_slots, config.index_entries, mappings)
    disk = Disk(root, state, config, Unsharing(parts, index_files).look)
    flusher = Flusher(parts)
    index = IndexDispatch(state, lock, log_files, index_files, flusher.flush_index)
    groups, compaction = GroupTable(state, config.lock_timeout_ms), Compaction(parts)

    replicas = Replicas(root, state, lock)
    appenders = Appenders(parts, life, disk, replicas)
    grants = Grants(parts, life, compaction)
    messages = StoredMessages(parts, index_files, index, compaction, grants.oldest, life.check_usable)

    oldest, for_waiting, flushed = compaction.oldest, appenders.for_waiting, flusher.wait_until_flushed
    schedule = Schedule(parts, oldest, for_waiting, flushed)
    timer = Timer(parts, oldest, for_waiting, messages.by_id, flushed)
    transactions = Transactions(parts, groups, oldest, for_waiting, flushed)
    once = Once(parts, index_files, settle=appenders.settle, build_index=index.catch_up)

    offsets = ConsumerOffsets(parts, groups)
    history, marks = History(root, lock), Marks(root, lock)
    before_removal = _nothing if life.is_replica else timer.roll_below
    retention = Retention(parts, index_files, disk, compaction, marks, before_removal=before_removal)
    releaser = Releaser(state, mappings, looks=not housekeeping)
    disk.enter()
    housekeeper = None
    if housekeeping:
        tasks = tasks_of(parts, flusher, offsets, disk, retention, compaction, index)
        housekeeper = _housekeeper(parts, life, tasks, appenders, schedule, timer, transactions, history)
    threads: list[Releaser | MovedClock | Housekeeper] = [releaser]
    if clock.is_movable():
        from rmqclient.store.runtime.moved_clock import MovedClock  # noqa: PLC0415 - for tests that move the clock

        threads.append(MovedClock(state))
    if housekeeper is not None:
        threads.append(housekeeper)
    return MessageStore(
        root=root,
        config=config,
        state=state,
        lock=lock,
        topics=topics,
        log_files=log_files,
        consume_queues=consume_queues,
        life=life,
        mappings=mappings,
        groups=groups,
        appenders=appenders,
        grants=grants,
        messages=messages,
        replicas=replicas,
        log_sending=LogSending(root, state, lock),
        index_files=index_files,
        index=index,
        once=once,
        schedule=schedule,
        timer=timer,
        transactions=transactions,
        disk=disk,
        flusher=flusher,
        offsets=offsets,
        retention=retention,
        compaction=compaction,
        history=history,
        marks=marks,
        housekeeper=housekeeper,
        threads=tuple(threads),
    )


def _housekeeper(
    parts: Parts,
    life: Life,
    tasks: Tasks,
    appenders: Appenders,
    schedule: Schedule,
    timer: Timer,
    transactions: Transactions,
    history: History,
) -> Housekeeper:
    state, lock = parts.state, parts.lock
    prepare = Passes(state).watched("making the next file of the log", appenders.prepare_next_file)
    if life.is_replica:  # its primary delivers what waits, and checks transactions
        return Housekeeper(state, lock, tasks, prepare, {}, _nothing, life.check_in_place)
    tasks |= tasks_of_waiting(parts, schedule.persist, timer.persist, transactions.check)
    tasks |= tasks_of_history(parts, history.record)
    beside = {"schedule": schedule.run, "timer": timer.run}
    return Housekeeper(state, lock, tasks, prepare, beside, timer.wake, life.check_in_place)


def _start(store: MessageStore) -> None:
    """Start the threads of a store, outside of the gate: one that fails or hangs must not hold up other processes.

    Raises LimitReached, and has left the store then.
    """
    try:
        for thread in store.threads:
            thread.start()
    except BaseException:
        with suppress(QueueError):  # the next opening recovers what could not be left in order
            store.close()
        raise


def _leave(store: MessageStore) -> None:
    try:
        if store.lock.place.replaced:  # an error has said so: there is nothing left to do here
            return
        store.life.check_in_place()
        with (
            store_errors(f"{store.root} cannot be closed in order"),
            store.lock.held(GATE_BYTE, _OPEN_TIMEOUT_S),
        ):
            try:
                if store.lock.try_exclusive(BROKER_BYTE):
                    _close_last(store)
            finally:  # before the gate: whoever comes through it next must not meet who has left
                store.lock.unlock(BROKER_BYTE)
    finally:
        store.mappings.close_files()
        _part(store)
        store.lock.close()
        clock.leave(store.lock)


def _part(store: MessageStore) -> None:
    """Undo the circles among the parts: mappings and descriptors then go with the last user of this store."""
    store.schedule.let_go()
    store.timer.let_go()
    if store.housekeeper is not None:
        store.housekeeper.forget_work()


def _close_last(store: MessageStore) -> None:
    """Make everything durable, then say so. No other process has the store open."""
    if store.state.poisoned:
        return  # what the disk holds is not known: the next opening recovers
    store.state.shut(store.config.lock_timeout_ms)
    repair(store.state, store.log_files, store.consume_queues, store.topics)
    store.flusher.wait_until_flushed(store.state.published_to)
    store.flusher.flush_queues()
    if not store.life.is_replica:
        store.transactions.finish()
        store.schedule.persist()
        store.timer.persist()
    store.offsets.persist()
    _close_index(store)
    store.history.finish()
    store.flusher.write_checkpoint()
    reach(CrashPoint.CLOSE_CHECKPOINTED)
    for base in store.log_files.bases():
        if base > store.state.published_to:
            store.log_files.remove(base)
    (store.root / ABORT).unlink(missing_ok=True)


def _close_index(store: MessageStore) -> None:
    """Leave a whole index: a broker adds only the messages that it dispatches itself."""
    if not store.config.message_index:
        return
    try:
        store.index.catch_up()
    except StoreFull as error:
        _log.warning("%s: the index is not up to date: %s", store.root, error)
    newest = store.index_files.newest()
    if newest is not None:
        store.flusher.flush_index(store.index_files, newest)
        store.state.index_timestamp = newest.header.end_timestamp


def _nothing(*_: object) -> None:
    """Do nothing, where a primary delivers or keeps messages that wait."""
