"""Recovery: what the first process that opens a store does before anybody else may.

:func:`survey` looks and changes nothing. :func:`plan` decides, from the survey alone. :func:`apply` changes; it can be
killed anywhere and done again. Printing the plan is a dry run.

How far the log is believed:

- While the kernel that ran the last processes still runs, their stores are all there, whoever was killed. The runtime
  file says how far records are whole (``published_to``), after an append under way was finished or undone.
- After a reboot, records below the durable mark of the checkpoint must be whole. Above it the first thing that is no
  valid record is a torn tail, and the log is cut there.
- A store of a broker has no such mark. A torn tail is then what no valid record follows.

The index is kept as far as it can be believed, and what follows is indexed again, later: see :func:`_index_kept`.

A record that is damaged and not in the tail is corruption: it is quarantined (kept as it is, reported, stepped over),
and what follows it is kept. Nothing else is ever deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from store import checkpoint, commit_log, config_file, index_file, layout
from store._kernel import FOUND, scan
from store.commit_log import describe
from store.consume_queue import ConsumeQueue, ConsumeQueues, Entry
from store.crash_points import CrashPoint, reach
from store.dispatch import dispatch
from store.file_queue import FileQueue
from store.group_table import GroupTable
from store.index_file import IndexSummary
from store.mapped_file import remove_scratch
from store.message_queue import MessageQueue
from store.record import End, decode
from store.shared_state import SharedState
from store.topic_table import TopicTable

ABORT = "abort"
_NOTHING = describe(End())


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Bytes of the log that are no record and are kept."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group has come with one queue."""

    committed_offset: int
    acknowledged: int = 0
    epoch: int = 0


Progress = dict[tuple[str, MessageQueue], GroupProgress]


@dataclass(frozen=True, slots=True)
class Survey:
    """What stands in the directory."""

    same_boot: bool
    """The runtime file is this boot's and fits the files: its frontiers are believed."""
    bases: tuple[int, ...]
    """First byte of every commit log file."""
    file_bytes: int
    trusted_to: int | None
    """Every byte below must be whole: a bad record there is corruption, not a torn tail. None when nobody said so."""
    scan_from: int
    """Records from here on were looked at."""
    steps_end: int
    """End of the last valid record or blank record found."""
    tail: str
    """What stands there, in words."""
    damaged: tuple[Quarantined, ...]
    missing_queues: bool
    """Consume queues hold fewer entries than were once durable: some were deleted."""
    index_files: tuple[IndexSummary, ...] = ()
    index_bytes: int = 0
    """Size that an index file has, 0 when nobody said so."""
    index_timestamp: int = 0
    """Index files that end no later are on disk, ms."""
    closed_cleanly: bool = False


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What will be changed."""

    log_begin: int
    log_end: int
    cut_reason: str | None
    """Why bytes above ``log_end`` are zeroed, None when they are zero already as they should be."""
    remove_files: tuple[int, ...]
    quarantined: tuple[Quarantined, ...]
    dispatch_ranges: tuple[tuple[int, int], ...]
    """Parts of the log whose consume queue entries are written again."""
    remove_index_files: tuple[str, ...] = ()
    indexed_to: int = 0
    """Records from here on are indexed again."""

    def lines(self) -> list[str]:
        """Return the plan in words, one step a line."""
        lines = [f"commit log from {self.log_begin} to {self.log_end}"]
        if self.cut_reason:
            lines.append(f"cut at {self.log_end}: {self.cut_reason}")
        lines += [f"remove the empty commit log file at {base}" for base in self.remove_files]
        lines += [f"quarantine bytes {bad.start} to {bad.end}: {bad.reason}" for bad in self.quarantined]
        lines += [f"dispatch {start} to {end}" for start, end in self.dispatch_ranges]
        lines += [f"remove index file {name}, which is made again" for name in self.remove_index_files]
        return lines


@dataclass(slots=True)
class Recovered:
    """What recovery found out, for building the runtime file."""

    plan: RecoveryPlan
    queues: dict[MessageQueue, tuple[int, int]] = field(default_factory=dict)
    """(min, max) offset of every message queue."""
    progress: Progress = field(default_factory=dict)
    last_store_timestamp: int = 0


def survey(root: Path, log_files: FileQueue, queues: ConsumeQueues, leftover: SharedState | None) -> Survey:
    """Look at everything; change nothing. ``leftover`` is the runtime file of this boot, its append settled."""
    bases = tuple(log_files.bases())
    begin = bases[0] if bases else 0
    marks, low_water = checkpoint.read(root)
    missing = low_water is not None and _queue_ends(queues, low_water.dispatched_to) < low_water.queue_ends
    last_byte = (bases[-1] if bases else 0) + log_files.file_bytes
    same_boot = leftover is not None and begin <= leftover.published_to <= last_byte
    scan_from = begin
    if low_water is not None and not missing and begin <= low_water.dispatched_to <= low_water.flushed_to:
        scan_from = low_water.dispatched_to
    trusted_to = low_water.flushed_to if low_water is not None else None
    if leftover is not None and same_boot:
        trusted_to = leftover.published_to
    end, tail, damaged = _scan(log_files, scan_from, trusted_to)
    settings = config_file.read_store_settings(root)
    return Survey(
        same_boot=same_boot,
        bases=bases,
        file_bytes=log_files.file_bytes,
        trusted_to=trusted_to,
        scan_from=scan_from,
        steps_end=end,
        tail=tail,
        damaged=tuple(damaged),
        missing_queues=missing,
        index_files=index_file.summaries(root),
        index_bytes=index_file.file_bytes(settings.index_slots, settings.index_entries) if settings else 0,
        index_timestamp=marks.index_timestamp,
        closed_cleanly=not (root / ABORT).exists(),
    )


def plan(found: Survey) -> RecoveryPlan:
    """Decide. Pure."""
    begin = found.bases[0] if found.bases else 0
    end = max(found.steps_end, begin)
    kept_base = end - end % found.file_bytes
    ranges = _between(found.scan_from, end, found.damaged)
    kept = _index_kept(found, end)
    indexed_to = kept[-1].header.end_offset if kept else begin
    return RecoveryPlan(
        log_begin=begin,
        log_end=end,
        cut_reason=None if found.tail == _NOTHING else found.tail,
        remove_files=tuple(base for base in found.bases if base > kept_base),
        quarantined=tuple(found.damaged),
        dispatch_ranges=ranges,
        remove_index_files=tuple(file.name for file in found.index_files[len(kept) :]),
        indexed_to=max(indexed_to, begin),
    )


def _index_kept(found: Survey, log_end: int) -> list[IndexSummary]:
    """Return the oldest index files, up to the first one that may lack something.

    While the same kernel runs, or after a clean close, all of them are whole. Else the newest was being written to in
    many places, and of the others those are that were on disk before they got a successor.
    """
    kept = []
    for file in found.index_files:
        is_newest = file is found.index_files[-1]
        is_whole = found.same_boot or found.closed_cleanly
        is_durable = not is_newest and file.header.end_timestamp <= found.index_timestamp
        fits = file.size == (found.index_bytes or file.size) and file.header.next_number >= 0
        if not fits or not (is_whole or is_durable) or file.header.end_offset >= max(log_end, 1):
            break
        kept.append(file)
    return kept


def apply(chosen: RecoveryPlan, root: Path, log_files: FileQueue, queues: ConsumeQueues) -> Recovered:
    """Make the directory agree with the plan. Raises StoreFull when a consume queue file cannot be made."""
    reach(CrashPoint.RECOVERY_PLANNED)
    remove_scratch(root)
    for name in reversed(chosen.remove_index_files):
        (root / index_file.DIRECTORY / name).unlink(missing_ok=True)
    for base in reversed(chosen.remove_files):
        log_files.remove(base)
    commit_log.zero(log_files, chosen.log_end, log_files.base_of(chosen.log_end) + log_files.file_bytes)
    reach(CrashPoint.RECOVERY_TAIL_CUT)
    done = dispatch(log_files, queues, list(chosen.dispatch_ranges))
    for queue, end in done.ends.items():
        _fill_gaps(queues[queue], end, chosen.quarantined)
    recovered = Recovered(chosen)
    dispatched_from = chosen.dispatch_ranges[0][0] if chosen.dispatch_ranges else chosen.log_end
    for queue in sorted({*queues.on_disk(), *done.ends}):
        end = max(done.ends.get(queue, 0), queues[queue].end_below(dispatched_from))
        queues[queue].cut(end)
        recovered.queues[queue] = (min(queues[queue].begin(chosen.log_begin), end), end)
    recovered.last_store_timestamp = checkpoint.read(root)[0].commit_log_timestamp
    reach(CrashPoint.RECOVERY_APPLIED)
    return recovered


def _fill_gaps(queue: ConsumeQueue, end: int, quarantined: tuple[Quarantined, ...]) -> None:
    """Point the entries of damaged records to the damage where they were lost, so that a queue has no holes.

    A hole would be taken for the end of the queue by the next recovery. Whoever takes such an entry finds the damage,
    reports it, and steps over it.
    """
    if not quarantined:
        return
    first = min(queue.files.bases()) // layout.CONSUME_QUEUE_ENTRY.size
    before = 0
    for number in range(first, end):
        entry = queue.entry(number)
        if entry.size:
            before = entry.commit_log_offset
        else:
            bad = next((bad for bad in quarantined if bad.start >= before), quarantined[-1])
            queue.write(number, Entry(bad.start, min(bad.end - bad.start, 2**31 - 1), 0))


def believable(leftover: SharedState, root: Path) -> bool:
    """Tell whether nobody but this library wrote to the store since the runtime file was last used.

    A broker writes to the lock file when it starts (DefaultMessageStore.start), which this library does only when it
    makes the file, and rewrites ``consumerOffset.json``.
    """
    digest = config_file.consumer_offsets_digest(root)
    same_offsets = digest in (leftover.offsets_digest, leftover.offsets_digest_next)
    return same_offsets and leftover.lock_mtime == (root / "lock").stat().st_mtime_ns


def progress_of(leftover: SharedState, topics: TopicTable, timeout_ms: int) -> Progress:
    """Take the groups' progress over from the runtime file, acknowledgements above the committed offset included."""
    kept: Progress = {}
    for slot in GroupTable(leftover, timeout_ms):
        bits = slot.acknowledged_bits()
        committed, advance_to = slot.load("committed_offset"), slot.load("advance_to")
        for offset in range(committed, advance_to):  # an owner died in the middle of an advance
            bits &= ~(1 << offset % layout.ACK_WINDOW)
        kept[slot.group, topics.queue(slot.queue_slot)] = GroupProgress(advance_to, bits, slot.load("epoch"))
    return kept


def progress_on_disk(root: Path) -> Progress:
    """Read the groups' progress from ``consumerOffset.json``."""
    return {
        (group, MessageQueue(topic, queue_id)): GroupProgress(offset)
        for (topic, group), offsets in config_file.read_consumer_offsets(root).items()
        for queue_id, offset in offsets.items()
    }


def _scan(files: FileQueue, start: int, trusted_to: int | None) -> tuple[int, str, list[Quarantined]]:
    """Walk from ``start``; return the end of the last good step, what stands there, and what was stepped over."""
    damaged: list[Quarantined] = []
    bases = files.bases()
    sure_to = trusted_to if trusted_to is not None else (bases[-1] + files.file_bytes if bases else 0)
    end = start
    while True:
        end, stopped, reason = _scan_on(files, end)
        if stopped >= sure_to:
            return end, reason, damaged
        resumed = commit_log.next_record(files, stopped + 1, sure_to)
        if resumed is None:
            if trusted_to is None:
                return end, reason, damaged
            resumed = trusted_to  # what must be there is not: it stays missed, and the log goes on behind it
        damaged.append(Quarantined(stopped, resumed, reason))
        end = resumed
        if not files.path(files.base_of(resumed)).exists():
            return resumed, _NOTHING, damaged


def _scan_on(files: FileQueue, start: int) -> tuple[int, int, str]:
    """Walk over what is valid; return its end, where the walk stopped, and why."""
    offset = start
    while True:
        base = files.base_of(offset)
        following = base + files.file_bytes
        try:
            content = files.mapping(base)
        except FileNotFoundError:
            return offset, offset, _NOTHING
        offset, found, _, _ = scan(content, base, offset, following)
        if found == FOUND["BLANK"]:
            offset = following
        elif offset < following:
            return offset, offset, describe(decode(content, offset - base, offset))


def _between(start: int, end: int, damaged: tuple[Quarantined, ...]) -> tuple[tuple[int, int], ...]:
    """Return the parts of ``[start, end)`` that are not damaged."""
    ranges = []
    for bad in damaged:
        if bad.start > start:
            ranges.append((start, bad.start))
        start = bad.end
    if end > start:
        ranges.append((start, end))
    return tuple(ranges)


def _queue_ends(queues: ConsumeQueues, commit_log_offset: int) -> int:
    """Return the sum of the max offsets, as far as the entries on disk are for records below ``commit_log_offset``."""
    return sum(queues[queue].end_below(commit_log_offset) for queue in queues.on_disk())
