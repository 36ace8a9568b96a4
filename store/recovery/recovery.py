"""Recovery: what the first process that opens a store does before any other process may use it.

- :func:`first_steps` finds what must be mended before the log can be read: files of another size, and an append whose
  process died. Opening carries these steps out, a dry run does not.
- :func:`survey` looks at everything. :func:`plan` decides, from the survey alone. :func:`plan_for` does both, for
  opening and for the dry run, so that a dry run prints what opening does.
- :func:`apply` changes the directory. It can be killed anywhere and repeated.

How far the log is believed:

- While the kernel that ran the last processes still runs, and has had the file system mounted ever since, all their
  stores to memory are there, whichever processes were killed. The runtime file says how far records are whole
  (``published_to``), after an append under way was finished or undone.
- After a reboot, when the disk was away, or when a flush had failed, records below the durable mark of the checkpoint
  must be whole. Above the mark, the first bytes that are no valid record are a torn tail, and the log is cut there.
- A store of a broker has no such mark. Its torn tail is the bytes that no valid record follows.

The index is kept as far as it can be believed, and later records are indexed again in time: see :func:`_index_kept`.

A damaged record that is not in the tail is corruption: it is quarantined (kept as it is, reported, stepped over), and
the records behind it are kept. The same holds for the gap that a lost file leaves before any file that begins with a
record. The consume queue entries of lost records stay, so that their queue offsets are not given again. A file that is
not empty and to which no record leads is moved to ``quarantined``. Nothing else is ever deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.files.mapped_file import remove_scratch, sync_directory
from rmqclient.store.layout import COPYING, IDLE, RECORDED
from rmqclient.store.log import commit_log, index_file
from rmqclient.store.log.consume_queue import ConsumeQueue, ConsumeQueues, Entry
from rmqclient.store.log.dispatch import dispatch
from rmqclient.store.log.index_file import IndexSummary
from rmqclient.store.log.shape import (
    QUARANTINED,
    OddFile,
    begins_with_record,
    is_empty,
    is_whole,
    odd_files,
    put_away,
)
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.recovery import log_scan
from rmqclient.store.recovery.counts import Counts
from rmqclient.store.recovery.group_progress import Progress
from rmqclient.store.recovery.log_scan import NOTHING, Quarantined
from rmqclient.store.runtime.shared_state import SharedState, has_sound_offsets
from rmqclient.store.settings import checkpoint, config_file, store_settings

ABORT = "abort"


@dataclass(frozen=True, slots=True)
class UnfinishedAppend:
    """An append whose process died in it."""

    start: int
    end: int
    is_recorded: bool
    """Whether its records are whole: then it is finished, otherwise undone."""

    def line(self) -> str:
        """Return in words what is done about it."""
        done = "finish" if self.is_recorded else "undo"
        return f"{done} the append of a killed process, bytes {self.start} to {self.end}"


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """What is mended before the log is surveyed, and what the survey may rely on."""

    resize: tuple[OddFile, ...] = ()
    """Files of another size than their kind has."""
    settle: UnfinishedAppend | None = None
    leftover: SharedState | None = None
    """The runtime file of this boot, None when it is missing or not to be believed."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found in the directory."""

    first: FirstSteps
    same_boot: bool
    """Whether the runtime file is this boot's and fits the files: then its frontiers are believed."""
    bases: tuple[int, ...]
    """First byte of every commit log file."""
    file_bytes: int
    trusted_to: int | None
    """Every byte below must be whole: a bad record there is corruption, not a torn tail. None without a mark."""
    scan_from: int
    """Records from here on were scanned."""
    steps_end: int
    """End of the last valid record or blank record found."""
    tail: str
    """What stands at that end, in words."""
    damaged: tuple[Quarantined, ...]
    missing_queues: bool
    """Whether consume queues hold other or fewer entries than were once durable: files were lost or exchanged."""
    foreign: tuple[int, ...]
    """Commit log files that are not empty, and begin at or above the end of the log."""
    entries_right_to: int
    """The consume queue entries of all records from ``scan_from`` up to here are right."""
    queue_ends: Mapping[MessageQueue, int]
    """Queue offset after the last of these records, by queue."""
    index_files: tuple[IndexSummary, ...] = ()
    index_bytes: int = 0
    """Size of an index file by the settings, 0 without settings."""
    index_timestamp: int = 0
    """Index files that end no later than this time, epoch ms, are on disk."""
    closed_cleanly: bool = False


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What opening changes."""

    first: FirstSteps
    """What is mended before everything else."""
    same_boot: bool
    """Whether the runtime file is believed: the groups' progress is taken from there, and all stores reached memory."""
    log_begin: int
    log_end: int
    cut_reason: str | None
    """Why bytes above ``log_end`` are zeroed, None if they are zero already."""
    remove_files: tuple[int, ...]
    """Empty files behind the end."""
    put_away_files: tuple[int, ...]
    """Files behind the end that are not empty: they are moved to ``quarantined``."""
    quarantined: tuple[Quarantined, ...]
    scanned_ranges: tuple[tuple[int, int], ...]
    """Parts of the log that were scanned and are valid."""
    dispatch_ranges: tuple[tuple[int, int], ...]
    """The scanned parts whose consume queue entries are written again: from the first wrong entry on."""
    queue_ends: Mapping[MessageQueue, int]
    """Queue offset after the last record below those parts, by queue."""
    remove_index_files: tuple[str, ...] = ()
    indexed_to: int = 0
    """Records from here on are indexed again."""
    index_timestamp: int = 0
    """Kept index files that end no later than this time, epoch ms, are on disk."""

    def lines(self) -> list[str]:
        """Return the plan in words, one step a line."""
        lines = [odd.line() for odd in self.first.resize]
        if self.first.settle is not None:
            lines.append(self.first.settle.line())
        lines.append(f"commit log from {self.log_begin} to {self.log_end}")
        if self.cut_reason:
            lines.append(f"cut at {self.log_end}: {self.cut_reason}")
        lines += [f"remove the empty commit log file at {base}" for base in self.remove_files]
        lines += [
            f"move the commit log file at {base}, to which no record leads, to {QUARANTINED}/"
            for base in self.put_away_files
        ]
        lines += [f"quarantine bytes {bad.start} to {bad.end}: {bad.reason}" for bad in self.quarantined]
        lines += [f"dispatch {start} to {end}" for start, end in self.dispatch_ranges]
        lines += [f"remove index file {name}, which is made again" for name in self.remove_index_files]
        return lines


@dataclass(slots=True)
class Recovered:
    """What recovery found, for building the runtime file."""

    plan: RecoveryPlan
    queues: dict[MessageQueue, tuple[int, int]] = field(default_factory=dict)
    """(min, max) offset of every message queue."""
    progress: Progress = field(default_factory=dict)
    delivered: dict[int, int] | None = None
    """By delay level, the next message to deliver; None unless the runtime file is believed."""
    timer: tuple[int, int, bytes] | None = None
    """Which messages of the timer are done; None unless the runtime file is believed."""
    counts: Counts = field(default_factory=Counts)
    """What was counted so far; nothing unless the runtime file is believed."""
    last_store_timestamp: int = 0
    doubtful: tuple[Quarantined, ...] = ()
    """Records of a broker whose queue offset is not believed: they are stepped over."""
    cut_queues: list[MessageQueue] = field(default_factory=list)
    """Queues that lost entries at and above their max offset."""


def first_steps(root: Path, log_files: FileQueue, queues: ConsumeQueues, leftover: SharedState | None) -> FirstSteps:
    """Find what must be mended before the log is surveyed. Changes nothing.

    ``leftover`` is the runtime file that the last processes left, None without one. Raises StoreUnusable for a file of
    the store that is not a regular file.
    """
    if leftover is not None and not _is_believed(leftover, root):
        leftover = None
    settle = None
    if leftover is not None and leftover.append_stage != IDLE:
        is_recorded = leftover.append_stage == RECORDED
        settle = UnfinishedAppend(leftover.append_from, leftover.written_to, is_recorded)
    return FirstSteps(tuple(odd_files(log_files, queues)), settle, leftover)


def plan_for(
    root: Path, log_files: FileQueue, queues: ConsumeQueues, first: FirstSteps, *, check_entries: bool = True
) -> RecoveryPlan:
    """Survey the directory and decide what is changed in it. Changes nothing.

    The plan is the same before the first steps were carried out and after. ``check_entries=False`` is for a dry run:
    see :func:`survey`. Raises StoreCorrupt when a byte cannot be read.
    """
    return plan(survey(root, log_files, queues, first, check_entries=check_entries))


def survey(
    root: Path, log_files: FileQueue, queues: ConsumeQueues, first: FirstSteps, *, check_entries: bool = True
) -> Survey:
    """Look at everything; change nothing.

    Files that had another size are read again from their begin. ``check_entries=False`` maps no consume queue, and
    takes no entry for right. Raises StoreCorrupt when a byte cannot be read.
    """
    leftover, odd = first.leftover, first.resize
    bases = tuple(log_files.bases())
    begin = bases[0] if bases else 0
    marks, low_water = checkpoint.read(root)
    missing = low_water is not None and _queue_ends(queues, low_water.dispatched_to) < low_water.queue_ends
    missing = missing or any(file.path.parent != log_files.directory for file in odd)
    missing = missing or not all(is_whole(queue, queues[queue], log_files) for queue in queues.on_disk())
    same_boot = leftover is not None and begin <= leftover.published_to
    scan_from = begin
    if low_water is not None and not missing and begin <= low_water.dispatched_to <= low_water.flushed_to:
        scan_from = low_water.dispatched_to
    scan_from = min([scan_from, *(int(file.path.name) for file in odd if file.path.parent == log_files.directory)])
    if not begins_with_record(log_files, log_files.base_of(scan_from)):
        scan_from = log_files.base_of(scan_from)  # the mark may be about another file
    trusted_to = low_water.flushed_to if low_water is not None else None
    if leftover is not None and same_boot:
        trusted_to = leftover.published_to
    scanned = log_scan.scan(log_files, scan_from, trusted_to, queues if check_entries else None)
    end, tail, foreign_from = scanned.end, scanned.tail, scanned.end
    if leftover is not None and same_boot and leftover.append_stage == COPYING:  # a dry run, before the undo
        scanned = replace(scanned, entries_right_to=scan_from, queue_ends={})
        end, tail, foreign_from = leftover.published_to, NOTHING, leftover.written_to
    settings = store_settings.read_store_settings(root)
    return Survey(
        first=first,
        same_boot=same_boot,
        bases=bases,
        file_bytes=log_files.file_bytes,
        trusted_to=trusted_to,
        scan_from=scan_from,
        steps_end=end,
        tail=tail,
        damaged=(*log_scan.damaged_below(log_files, scan_from), *scanned.damaged),
        entries_right_to=scanned.entries_right_to,
        queue_ends=scanned.queue_ends,
        missing_queues=missing,
        foreign=tuple(base for base in bases if base >= foreign_from and not is_empty(log_files, base)),
        index_files=index_file.summaries(root),
        index_bytes=index_file.file_bytes(settings.index_slots, settings.index_entries) if settings else 0,
        index_timestamp=marks.index_timestamp,
        closed_cleanly=not (root / ABORT).exists(),
    )


def plan(found: Survey) -> RecoveryPlan:
    """Decide what to change. A pure function."""
    begin = found.bases[0] if found.bases else found.steps_end
    end = max(found.steps_end, begin)
    kept_base = end - end % found.file_bytes
    kept = _index_kept(found, end)
    indexed_to = kept[-1].header.end_offset if kept else begin
    return RecoveryPlan(
        first=found.first,
        same_boot=found.same_boot,
        log_begin=begin,
        log_end=end,
        cut_reason=None if found.tail == NOTHING else found.tail,
        remove_files=tuple(base for base in found.bases if base > kept_base and base not in found.foreign),
        put_away_files=found.foreign,
        quarantined=tuple(found.damaged),
        scanned_ranges=_between(found.scan_from, end, found.damaged),
        dispatch_ranges=_between(found.entries_right_to, end, found.damaged),
        queue_ends=found.queue_ends,
        remove_index_files=tuple(file.name for file in found.index_files[len(kept) :]),
        indexed_to=max(indexed_to, begin),
        index_timestamp=min(found.index_timestamp, kept[-1].header.end_timestamp if kept else 0),
    )


def _index_kept(found: Survey, log_end: int) -> list[IndexSummary]:
    """Return the oldest index files, up to the first one that may lack something.

    While the same kernel runs, or after a clean close, all of them are whole. Otherwise the newest file was being
    written in many places, and an older file is whole if it was on disk before it got a successor.
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
    """Make the directory agree with the plan, whose first steps are done. Raises StoreFull for want of room."""
    reach(CrashPoint.RECOVERY_PLANNED)
    remove_scratch(root)
    for name in reversed(chosen.remove_index_files):
        (root / index_file.DIRECTORY / name).unlink(missing_ok=True)
    if (root / index_file.DIRECTORY).is_dir():  # otherwise a power cut could bring them back beside other records
        sync_directory(root / index_file.DIRECTORY)
    for base in reversed(chosen.remove_files):
        log_files.remove(base)
    for base in reversed(chosen.put_away_files):
        put_away(log_files, base, root)
    file_end = log_files.base_of(chosen.log_end) + log_files.file_bytes
    zeroed = commit_log.zero(log_files, chosen.log_end, file_end) if chosen.cut_reason is not None else 0
    if zeroed or chosen.remove_files:
        log_files.sync(chosen.log_end, file_end)  # otherwise a power cut could bring it back behind newer records
    reach(CrashPoint.RECOVERY_TAIL_CUT)
    done = dispatch(log_files, queues, list(chosen.dispatch_ranges), chosen.queue_ends)
    doubtful = [Quarantined(begin, end, "a queue offset far from its neighbours") for begin, end in done.doubtful]
    missed = tuple(sorted((*chosen.quarantined, *doubtful), key=lambda bad: bad.start))
    for queue, end in done.ends.items():
        _fill_gaps(queues[queue], end, missed)
    recovered = Recovered(chosen, doubtful=tuple(doubtful))
    scanned_from = chosen.scanned_ranges[0][0] if chosen.scanned_ranges else chosen.log_end
    for queue in sorted({*queues.on_disk(), *done.ends}):
        done_to = done.ends.get(queue)
        end = done_to if done_to is not None else _end_below(log_files, queue, queues[queue], scanned_from)
        end = _end_of_lost(queues[queue], end, chosen.quarantined)
        if queues[queue].cut(end):
            recovered.cut_queues.append(queue)
        recovered.queues[queue] = (min(queues[queue].begin(chosen.log_begin), end), end)
    recovered.last_store_timestamp = checkpoint.read(root)[0].commit_log_timestamp
    reach(CrashPoint.RECOVERY_APPLIED)
    return recovered


def _end_below(files: FileQueue, queue: MessageQueue, entries: ConsumeQueue, commit_log_offset: int) -> int:
    """Return the queue offset after the last entry for a record below ``commit_log_offset``.

    An entry for a later record may have reached the disk in part, with zeros for its offset. Its size then stands
    beside an offset that is too low, where another record is.
    """
    end = entries.end_below(commit_log_offset)
    first = min(entries.files.bases(), default=0) // layout.CONSUME_QUEUE_ENTRY.size
    while end > first and _is_torn(files, queue, entries, end - 1, commit_log_offset):
        end -= 1
    return end


def _is_torn(files: FileQueue, queue: MessageQueue, entries: ConsumeQueue, number: int, end: int) -> bool:
    try:
        entry = entries.entry(number)
    except FileNotFoundError:
        return True
    if entry == Entry(*layout.PRE_BLANK_ENTRY):
        return False
    if entry.size <= 0 or not 0 <= entry.commit_log_offset < end:
        return True
    try:
        found = commit_log.read(files, entry.commit_log_offset)
    except StoreCorrupt:
        return False  # the record is damaged or deleted: the entry stays
    return (found.topic, found.queue_id, found.queue_offset) != (queue.topic, queue.queue_id, number)


def _fill_gaps(queue: ConsumeQueue, end: int, quarantined: tuple[Quarantined, ...]) -> None:
    """Point lost entries of damaged records to the damage, so that a queue has no holes.

    The next recovery would take a hole for the end of the queue. A consumer that takes such an entry finds the damage,
    reports it, and steps over it.
    """
    if not quarantined:
        return
    bases = queue.files.bases()
    first = min(bases) // layout.CONSUME_QUEUE_ENTRY.size if bases else end - 1
    before = 0
    for number in range(first, end):
        entry = queue.entry_or_none(number)
        if entry is not None:
            before = entry.commit_log_offset
        else:
            bad = next((bad for bad in quarantined if bad.start >= before), quarantined[-1])
            queue.write(number, Entry(bad.start, min(bad.end - bad.start, 2**31 - 1), 0))


def _end_of_lost(queue: ConsumeQueue, end: int, quarantined: tuple[Quarantined, ...]) -> int:
    """Return the end of the entries, from ``end`` on, of lost records: their queue offsets are not given again."""
    while (entry := queue.entry_or_none(end)) is not None:
        if not any(bad.start <= entry.commit_log_offset < bad.end for bad in quarantined):
            break
        end += 1
    return end


def _is_believed(leftover: SharedState, root: Path) -> bool:
    if leftover.poisoned:  # the kernel drops the pages that it could not write: they may be older than this file
        return False
    return believable(leftover, root) and fits_together(leftover) and has_sound_offsets(leftover)


def believable(leftover: SharedState, root: Path) -> bool:
    """Tell whether only this library wrote to the store since the runtime file was last used.

    A broker writes to the lock file when it starts (DefaultMessageStore.start), which this library does only when it
    makes the file, and rewrites ``consumerOffset.json``.
    """
    digest = config_file.consumer_offsets_digest(root)
    same_offsets = digest in (leftover.offsets_digest, leftover.offsets_digest_next)
    return same_offsets and leftover.lock_mtime == (root / "lock").stat().st_mtime_ns


def fits_together(leftover: SharedState) -> bool:
    """Tell whether the frontiers can be those that an append leaves behind, finished, under way or undone.

    Only for a store that no process has open. A repair by damaged frontiers would zero good records.
    """
    published_to, written_to = leftover.published_to, leftover.written_to
    longest_append = 2 * leftover.words.load(layout.RUNTIME_HEADER.at["commit_log_file_bytes"])
    in_order = leftover.flushed_to <= published_to <= written_to <= published_to + longest_append
    begins = {IDLE: 0, COPYING: published_to, RECORDED: 0}.get(leftover.append_stage)
    return in_order and begins is not None and begins <= leftover.append_from <= written_to


def _between(start: int, end: int, damaged: tuple[Quarantined, ...]) -> tuple[tuple[int, int], ...]:
    """Return the undamaged parts of ``[start, end)``."""
    ranges = []
    for bad in damaged:
        if bad.start > start:
            ranges.append((start, bad.start))
        start = max(start, bad.end)
    if end > start:
        ranges.append((start, end))
    return tuple(ranges)


def _queue_ends(queues: ConsumeQueues, commit_log_offset: int) -> int:
    """Return the sum of the max offsets, as far as the entries on disk are for records below ``commit_log_offset``."""
    return sum(queues[queue].end_below(commit_log_offset) for queue in queues.on_disk())
