"""Opening: what happens to a directory before a process may use the store in it.

Everything happens under the gate byte of the lock file. An exclusive lock on byte 0 means that no other process has the
store open: the opener recovers the directory, builds the runtime file, creates ``abort`` and keeps the byte shared for
the life of the process. If only a shared lock succeeds, the opener attaches to the runtime file. If even that fails, a
RocketMQ broker has the store open.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from rmqclient.store import clock, layout
from rmqclient.store.append import replicas
from rmqclient.store.append.appending import repair
from rmqclient.store.config import StoreConfig
from rmqclient.store.errors import (
    ConfigMismatch,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreInUse,
    StoreUnusable,
    as_store_error,
)
from rmqclient.store.files.file_lock import BROKER_BYTE, LockFile
from rmqclient.store.files.file_queue import FileQueue, MappingCache
from rmqclient.store.files.file_system import check_content, warn_of_loss
from rmqclient.store.files.mapped_file import SCRATCH_PREFIX, forget_pages, sync_directory
from rmqclient.store.files.sharing import open_for_owner
from rmqclient.store.log import commit_log, index_file, shape
from rmqclient.store.log.consume_queue import ConsumeQueues
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.recovery import counts, cutting, group_progress, recovery
from rmqclient.store.recovery.contents import check_no_others, is_store
from rmqclient.store.recovery.group_progress import GroupProgress
from rmqclient.store.recovery.recovery import ABORT, Recovered
from rmqclient.store.runtime import shared_state
from rmqclient.store.runtime.group_table import GroupQueueSlot, GroupTable
from rmqclient.store.runtime.queue_table import QueueTable
from rmqclient.store.runtime.shared_state import SharedState, running_slot_at
from rmqclient.store.settings import (
    checkpoint,
    config_file,
    identity,
    lineage,
    removed_topics,
    replica_mark,
    store_settings,
)
from rmqclient.store.settings.replica_mark import Kind, ReplicaMark
from rmqclient.store.settings.replication import read_replication
from rmqclient.store.settings.store_settings import STORE_SETTINGS_FILE, StoreSettings
from rmqclient.store.settings.topic_table import TopicTable, queues_of
from rmqclient.store.threads.logs import Log
from rmqclient.store.upkeep import compaction
from rmqclient.store.upkeep.flush import Flusher
from rmqclient.store.waiting import schedule_restore, timer_restore

_log = Log(__name__)


def files_of(root: Path, config: StoreConfig, mappings: MappingCache) -> tuple[FileQueue, ConsumeQueues]:
    """Return the commit log files and the consume queues of a store."""
    log_files = FileQueue(root / commit_log.DIRECTORY, config.commit_log_file_bytes, scratch=root, mappings=mappings)
    return log_files, ConsumeQueues(root, config.consume_queue_file_bytes, mappings)


def _check_path(root: Path) -> None:
    try:  # bytes that are no UTF-8 may be in a path: os shows them as halves of surrogate pairs of its own
        is_path = b"\0" not in os.fsencode(root)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise StoreUnusable(f"{str(root)!r} cannot be a path: it has a NUL character or half of a surrogate pair")


def make_root(root: Path, *, create: bool) -> None:
    """Make the directory of a store if it is missing.

    Raises StoreUnusable, also for a directory that is no store and has files where one would make its own; StoreFull.
    """
    _check_path(root)
    try:
        if create:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not root.is_dir():
            raise StoreUnusable(f"{root} is not a directory: give the directory of a store")
        if not create and not is_store(root):
            raise StoreUnusable(f"{root} holds no store: it is made by the first producer or worker that opens it")
        if os.statvfs(root).f_flag & os.ST_RDONLY:
            raise StoreUnusable(
                f"{root} lies on a file system that is mounted read-only: mount it for writing; "
                "`rmq store dump` and `verify` look at it as it is"
            )
        if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
            owner = root.stat()
            mode = stat.S_IMODE(owner.st_mode)
            raise StoreUnusable(
                f"{root} is not readable and writable by this user, {os.geteuid()}: it belongs to user {owner.st_uid} "
                f"and group {owner.st_gid} with mode {mode:o}; run as its owner, or share it with the "
                "group: docs/operate/deploy.md"
            )
        check_no_others(root)
    except FileExistsError as error:
        raise StoreUnusable(f"{root} cannot be used as a store: {error.strerror}") from error
    except OSError as error:
        raise as_store_error(error, f"{root} cannot be used as a store") from error


def settle_config(root: Path, config: StoreConfig | None) -> StoreConfig:
    """Return the settings to work with; record the fixed ones of a new store. Raises ConfigMismatch."""
    wanted = config if config is not None else StoreConfig()
    recorded = store_settings.read_store_settings(root) or _settings_of_a_broker(root, config)
    asked = _fixed(wanted)
    if recorded is None:
        recorded = asked
    if config is not None and recorded != asked:
        raise ConfigMismatch(f"{root} was made with {recorded}, but {asked} was asked for: open it with config=None")
    if not (root / STORE_SETTINGS_FILE).exists():
        store_settings.write_store_settings(root, recorded)
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
    """Read the fixed settings off the files of a store that a RocketMQ broker made; None without files."""
    log_bytes, queue_bytes = shape.usual_sizes(root)
    if not log_bytes:
        return None
    queue_bytes = queue_bytes or StoreConfig().consume_queue_file_bytes
    index = (config.index_slots, config.index_entries) if config else _index_settings_of_a_broker(root)
    return StoreSettings(log_bytes, queue_bytes // layout.CONSUME_QUEUE_ENTRY.size, *index)


def _index_settings_of_a_broker(root: Path) -> tuple[int, int]:
    """Read the index settings off the oldest index file, which is the fullest."""
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


def _touch(path: Path) -> None:
    """Make an empty file if it is missing."""
    try:
        os.close(open_for_owner(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return


def enter(root: Path, config: StoreConfig, lock: LockFile, *, settling: bool = False) -> SharedState:
    """Become one of the processes that have the store open; the first one recovers it.

    The caller holds the gate. When this fails, it unlocks byte 0 before it gives the gate back.
    ``settling`` opens a primary that waits for what its replica has, too. Raises StoreUnsettled without it.
    """
    if lock.try_exclusive(BROKER_BYTE):
        state = _enter_first(root, config, lock, settling=settling)
        lock.try_shared(BROKER_BYTE)
        return state
    if lock.try_shared(BROKER_BYTE):
        _check_settled(root, settling=settling)
        state = shared_state.attach(root)
        if replica_mark.read_mark(root) is not None:  # of a fence, perhaps, whose process was killed before it said so
            state.words.set_bits(layout.RUNTIME_HEADER.at["restricted"], layout.RESTRICTED["replica"])
        return state
    pid = lock.holder(BROKER_BYTE)
    raise StoreInUse(f"{root} is open in a RocketMQ broker (process {pid or 'unknown'}): stop it first")


def _enter_first(root: Path, config: StoreConfig, lock: LockFile, *, settling: bool) -> SharedState:
    """Recover the store, which no other process has open.

    Files are made, replaced and removed by their names, so each step first looks whether another directory has them.
    """
    check_content(root, SCRATCH_PREFIX)
    if _is_poisoned(root):
        forget_pages(root)
    _ensure_identity(root)
    _note_a_loss(root)
    _check_settled(root, settling=settling)
    if not clock.is_movable():  # what is made for a test may be lost
        warn_of_loss(root)
    state = _recover(root, config, lock)
    _touch(root / ABORT)
    sync_directory(root)  # if `abort` were lost, the next recovery would believe that the index is whole
    return state


def _ensure_identity(root: Path) -> None:
    """Give a store its identity, if it has none. A full disk of a store that is older than this puts that off."""
    if identity.store_identity(root) is None:
        with contextlib.suppress(StoreFull):
            identity.write_identity(root, lineage.read_lineage(root).store_id or identity.new_identity())


def _note_a_loss(root: Path) -> None:
    """Let a primary that may have lost messages wait for its replica: it has one, and the host was reset."""
    had_a_replica = lineage.is_followed(root) and replica_mark.read_mark(root) is None
    if had_a_replica and (root / ABORT).exists() and _lost_memory(root):
        replica_mark.write_mark(root, ReplicaMark("", "", clock.wall_ms(), Kind.UNSETTLED))


def _lost_memory(root: Path) -> bool:
    """Tell whether the kernel no longer has all that was stored: it was started anew, the disk was away, or failed."""
    return shared_state.leftover(root, writable=False) is None or _is_poisoned(root)


def _is_poisoned(root: Path) -> bool:
    """Tell whether a flush failed since the store was opened last by a process that was alone."""
    left = shared_state.leftover(root, writable=False)
    return left is not None and left.poisoned != 0


def _check_settled(root: Path, *, settling: bool) -> None:
    mark = replica_mark.read_mark(root)
    if mark is not None and mark.kind is Kind.UNSETTLED and not settling:
        raise replica_mark.unsettled(root)


def _recover(root: Path, config: StoreConfig, lock: LockFile) -> SharedState:
    log_files, queues = files_of(
        root, config, MappingCache(config.max_mapped_files, check_in_place=lock.check_in_place)
    )
    cutting.finish(root, log_files)
    timeout_ms = config.lock_timeout_ms
    shape.check_sizes(root, config.commit_log_file_bytes, config.consume_queue_file_entries)
    left = shared_state.leftover(root)
    if left is not None:
        _shut(left, timeout_ms)
    first = recovery.first_steps(root, log_files, queues, left)
    leftover = first.leftover
    lock.check_in_place()
    for odd in first.resize:
        _log.error("%s", odd.line())
        shape.resize(odd, root)
    if leftover is not None and first.settle is not None:
        _settle_appends(leftover, log_files, queues, QueueTable(root, leftover, timeout_ms))
    chosen = recovery.plan_for(root, log_files, queues, first)
    lock.check_in_place()
    recovered = recovery.apply(chosen, root, log_files, queues)
    for bad in (*chosen.quarantined, *recovered.doubtful):
        _log.error(
            "%s: bytes %d to %d of the commit log are damaged (%s): kept and stepped over",
            root,
            bad.start,
            bad.end,
            bad.reason,
        )
    recovered.progress = group_progress.progress_on_disk(root)
    if leftover is not None and chosen.same_boot:
        topics = QueueTable(root, leftover, timeout_ms)
        if not leftover.is_replica:  # which delivers nothing by itself: the log says what its primary has delivered
            recovered.delivered = schedule_restore.delivered_of(leftover)
            recovered.timer = timer_restore.done_of(leftover, topics)
        group_progress.finish_seeks(leftover, timeout_ms)
        recovered.progress |= group_progress.progress_of(leftover, topics, timeout_ms)
        recovered.counts = counts.counts_of(leftover, topics)
    return _build(root, config, lock, recovered, log_files, queues, left)


def _shut(state: SharedState, timeout_ms: int) -> None:
    """Keep out a thread whose process has closed the store and lives on, and that was about to append."""
    try:
        state.shut(timeout_ms)
    except (StoreBusy, OSError) as error:  # it stands still in the midst of an append, or the mutex is damaged
        _log.error("an append by a process that has left the store may still be under way: %s", error)


def _settle_appends(state: SharedState, log_files: FileQueue, queues: ConsumeQueues, topics: QueueTable) -> None:
    try:
        repair(state, log_files, queues, topics)
    except StoreCorrupt as error:
        # The append had not returned to its caller. It cannot be completed, so the survey takes it for a torn tail.
        _log.error("an append that was under way is damaged, and is cut off: %s", error)


def _without_removed(
    recovered: Mapping[MessageQueue, tuple[int, int]], queues: ConsumeQueues, ends: Mapping[str, int]
) -> dict[MessageQueue, tuple[int, int]]:
    """Return the (min, max) queue offsets of recovered queues without the messages of removed topics."""
    found = dict(recovered)
    for queue, (low, high) in recovered.items():
        if queue.topic in ends:
            found[queue] = queues[queue].oldest(low, high, ends[queue.topic]), high
    return found


def _build(
    root: Path,
    config: StoreConfig,
    lock: LockFile,
    recovered: Recovered,
    log_files: FileQueue,
    queues: ConsumeQueues,
    left: SharedState | None,
) -> SharedState:
    """Build the runtime file from what recovery found, after flushing everything that recovery wrote."""
    lock.check_in_place()
    state = _new_state(root, config, left)
    log_end = recovered.plan.log_end
    state.restricted = layout.RESTRICTED["replica"] if replica_mark.read_mark(root) is not None else 0
    replicas.apply(state, read_replication(root))
    state.min_offset = recovered.plan.log_begin
    state.published_to = state.written_to = log_end
    state.last_store_timestamp = recovered.last_store_timestamp
    state.indexed_to = recovered.plan.indexed_to
    state.index_timestamp = recovered.plan.index_timestamp
    ranges = recovered.plan.scanned_ranges
    state.flushed_to = ranges[0][0] if ranges else log_end
    topics = TopicTable(root, state, lock, config.lock_timeout_ms)
    declared = [
        MessageQueue(topic, queue_id)
        for topic, settings in config_file.read_topics(root).items()
        for queue_id in range(queues_of(settings))
    ]
    bounds = compaction.lowered(
        root, _without_removed(recovered.queues, queues, removed_topics.lowered_ends(root, log_end))
    )
    topics.add(sorted({*declared, *bounds}), bounds)
    withdrawn = _restore_groups(state, topics, recovered, bounds, config.lock_timeout_ms)
    if withdrawn:
        lock.check_in_place()
        config_file.write_consumer_offsets(root, withdrawn)
    counts.restore(state, topics, recovered.counts)
    schedule_restore.restore(root, state, topics, log_files, queues, recovered.delivered)
    timer_restore.restore(root, state, topics, log_files, queues, recovered.timer)
    state.offsets_digest = state.offsets_digest_next = config_file.consumer_offsets_digest(root)
    flusher = Flusher(Parts(root, config, state, lock, topics, log_files, queues))
    if not recovered.plan.same_boot:
        flusher.flush_ends({queue: recovered.queues[queue][1] for queue in recovered.cut_queues})
    if ranges or checkpoint.read(root)[1] is None:  # without a mark, a torn tail would look like damage
        flusher.flush_recovered(log_end)
        flusher.flush_queues()
        flusher.write_checkpoint()
    lock.check_in_place()
    shared_state.finish(state, root)
    return state


def _new_state(root: Path, config: StoreConfig, left: SharedState | None) -> SharedState:
    """Build the runtime file. On a full disk it takes the room of the old one, if nothing is lost by that.

    A store that was closed has said everything in its other files. The next opening then finds what it finds after a
    reboot, if this one is killed.
    """
    sizes = config.commit_log_file_bytes, config.consume_queue_file_bytes
    try:
        return shared_state.build(root, *sizes)
    except StoreFull as error:
        if left is not None and (root / ABORT).exists():
            raise StoreFull(
                f"{error}. What was acknowledged last stands in {root / shared_state.FILE_NAME} only, which the new "
                f"file replaces: make room for {layout.RUNTIME_SIZE} bytes"
            ) from error
    shared_state.give_up(root, left)
    return shared_state.build(root, *sizes)


def _restore_groups(
    state: SharedState,
    topics: QueueTable,
    recovered: Recovered,
    bounds: dict[MessageQueue, tuple[int, int]],
    timeout_ms: int,
) -> dict[tuple[str, str], dict[int, int]]:
    """Fill the group-queue table; return the committed offsets that fell back to the end of their queue.

    The messages above that end did not survive a power cut. ``consumerOffset.json`` must not keep saying that they are
    finished: other messages get their numbers, and after another power cut those would never be delivered.
    """
    groups = GroupTable(state, timeout_ms)
    known = set(topics.all_queues())
    withdrawn: dict[tuple[str, str], dict[int, int]] = {}
    for (group, queue), progress in recovered.progress.items():
        if queue in known:
            low, high = bounds.get(queue, (0, 0))
            committed = min(max(progress.committed_offset, low), high)
            slot = groups.find_or_add(group, topics.slot(queue), committed)
            bits = progress.acknowledged if committed == progress.committed_offset else 0
            window = bits & _window(committed, high)
            slot.restore(
                committed,
                window,
                progress.epoch,
                progress.held,
                fence=progress.fence,
                paused=progress.paused,
                counters=progress.counters,
            )
            _restore_interrupted(state, slot, progress, high)
            if committed < progress.committed_offset:
                withdrawn.setdefault((queue.topic, group), {})[queue.queue_id] = committed
    return withdrawn


def _restore_interrupted(state: SharedState, slot: GroupQueueSlot, progress: GroupProgress, max_offset: int) -> None:
    """Keep the record of unfinished messages that were being handled when all processes died."""
    fields = layout.RUNNING_SLOT.at
    for each in progress.interrupted:
        if each.last_offset >= max_offset or not slot.unfinished(each.queue_offset, each.last_offset):
            continue
        at = running_slot_at(state.running_count)
        words = {"queue_offset": each.queue_offset, "last_offset": each.last_offset, "attempt": each.attempt}
        for name, value in (*words.items(), ("member", layout.NOBODY)):
            state.words.store(at + fields[name], value)
        state.words.store32(at + fields["group_queue"], slot.number)
        state.words.store32(at + fields["pid"], each.pid)
        state.running_count += 1


def _window(committed: int, max_offset: int) -> int:
    """Return a mask of the bits of existing messages: a bit set for a later message would hide that message."""
    there = (1 << max(0, min(max_offset - committed, layout.ACK_WINDOW))) - 1
    turn = committed % layout.ACK_WINDOW
    return (there << turn | there >> layout.ACK_WINDOW - turn) & (1 << layout.ACK_WINDOW) - 1
