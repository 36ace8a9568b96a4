"""Appending: what the compiled append asks for between its attempts, and the repair of an append whose process died.

The append (``append_section`` in the kernel) runs under the append mutex and leaves a stage behind:

=========  =========================================  =====================================================
stage      what a death leaves                        what the next owner of the mutex does
=========  =========================================  =====================================================
idle       nothing                                    nothing
copying    bytes from ``append_from`` to              zeroes them, and a blank record at ``published_to``,
           ``written_to`` that no process may read    durably
recorded   whole records there, entries due           writes the entries, publishes records and queues, and
                                                      moves ``progress_at`` to ``progress_to``, or
                                                      sets those bits there
=========  =========================================  =====================================================

Both repairs can be repeated. A message, or a whole batch, is therefore stored entirely or not at all.
"""

from __future__ import annotations

import datetime
from collections import Counter

from rmqclient.store import layout
from rmqclient.store.append.admission import Waits
from rmqclient.store.config import Durability
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import StoreCorrupt, store_errors
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.files.mapped_file import map_file
from rmqclient.store.kernel._kernel import Mapping
from rmqclient.store.log import commit_log
from rmqclient.store.log.consume_queue import ConsumeQueue, ConsumeQueues, Entry
from rmqclient.store.log.dispatch import has_entry
from rmqclient.store.log.record import Record
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.queue_table import QueueTable
from rmqclient.store.runtime.shared_state import SharedState, group_queue_slot_at, schedule_slot_at
from rmqclient.store.settings.disk import Disk

_SCHEDULE_WORDS = frozenset(map(schedule_slot_at, range(layout.SCHEDULE_SLOTS)))
_TIMER_WORDS = range(layout.TIMER_AT + layout.TIMER_HEADER.size, layout.RUNTIME_SIZE, 8)
_PREPARE_WORD = layout.RUNTIME_HEADER.at["prepare_word"]
_ADVANCE_TO = group_queue_slot_at(0) + layout.GROUP_QUEUE_SLOT.at["advance_to"]

FilePair = tuple[Mapping, int, Mapping | None, int]


class AppendFiles:
    """What the appender of one process asks for: files, room on the disk, and repairs."""

    def __init__(self, parts: Parts, disk: Disk, admission: Waits) -> None:
        self._state = parts.state
        self._log_files = parts.log_files
        self._consume_queues = parts.consume_queues
        self._topics = parts.topics
        self._config = parts.config
        self.check_room = disk.check_room
        self.admit = admission.admit
        self.replicated = admission.replicated

    def rolled(self) -> None:
        """Ask the housekeeper for the next file: the log has entered a new one."""
        self._state.words.signal(_PREPARE_WORD)

    def prepare_next(self) -> None:
        """Make the commit log file that the next roll needs. Raises StoreFull."""
        files = self._log_files
        following = files.base_of(self._state.published_to) + files.file_bytes
        with store_errors(f"{files.path(following)} cannot be made"):
            if files.bases():  # an empty store needs no next file
                is_new = files.allocate(following)
                if is_new and self._config.warm_mapped_files:
                    map_file(files.path(following), files.file_bytes).populate()
                self._state.allocated_to = following + files.file_bytes

    def log_files(self, size: int) -> FilePair:
        """Map the commit log file that takes the next ``size`` bytes, and the following file if they need it.

        Raises StoreFull if a file is missing and there is no room for it, LimitReached, DiskFailed.
        """
        files, end = self._log_files, self._state.published_to
        base = files.base_of(end)
        following = base + files.file_bytes
        files.allocate(base)
        if end + size + layout.BLANK_RECORD.size > following:
            files.allocate(following)
        try:
            return self._log_file(base), base, self._log_file(following), following
        except FileNotFoundError:
            return self._log_file(base), base, None, 0

    def _log_file(self, base: int) -> Mapping:
        mapping = self._log_files.mapping(base)
        if self._config.durability is Durability.SYNC:
            # What is read ahead lies in folios of up to 2 MiB. A store into one of them makes all of it dirty, and each
            # flush then writes all of it.
            mapping.read_no_further()
        return mapping

    def queue_files(self, slot: int, count: int) -> FilePair:
        """Map the consume queue files that take the next ``count`` entries of a queue. Raises StoreFull."""
        queue = self._topics.queue(slot)
        consume_queue = self._consume_queues[queue]
        start = self._topics.max_offset(queue)
        first = consume_queue.first_entry_of(start)
        last = consume_queue.first_entry_of(start + count - 1)
        if last == first:
            return self._queue_file(consume_queue, first, start + count), first, None, 0
        whole = self._queue_file(consume_queue, first, last)
        return whole, first, self._queue_file(consume_queue, last, start + count), last

    @staticmethod
    def _queue_file(consume_queue: ConsumeQueue, first: int, end: int) -> Mapping:
        """Map a file of a queue that takes entries up to ``end``; make it if it is missing."""
        base = first * layout.CONSUME_QUEUE_ENTRY.size
        is_new = consume_queue.files.allocate(base)
        will_fill = is_new and first  # a queue that has filled a file will fill the next one, too
        entries = consume_queue.entries_per_file if will_fill else end - first
        mapping = consume_queue.files.reserve(base, entries * layout.CONSUME_QUEUE_ENTRY.size)
        mapping.read_no_further()  # 10,000 queues would fill a gigabyte of memory with zeros
        if will_fill:
            with store_errors(f"{consume_queue.files.path(base)} cannot be populated"):
                mapping.populate()
        return mapping

    def repair(self) -> None:
        """Finish or undo the append of a process that died during it. Raises StoreBusy, StoreCorrupt, LimitReached."""
        doing = "an append that was cut short cannot be repaired"
        with store_errors(doing), self._state.locked(self._state.append_mutex, self._config.lock_timeout_ms):
            repair(self._state, self._log_files, self._consume_queues, self._topics)
        for lane in range(layout.ARRIVAL_LANES):
            self._state.signal_arrival(lane)

    @staticmethod
    def month(now_ms: int) -> tuple[int, int]:
        """Return begin and end, in ms, of the local month of ``now_ms`` (MessageClientIDSetter.setStartTime)."""
        now = datetime.datetime.fromtimestamp(now_ms / 1000).astimezone()
        begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        end = (begin + datetime.timedelta(days=32)).replace(day=1)
        return int(begin.timestamp() * 1000), int(end.timestamp() * 1000)


def repair(state: SharedState, log_files: FileQueue, consume_queues: ConsumeQueues, topics: QueueTable) -> None:
    """Finish or undo an interrupted append; the caller holds the append mutex, or has the store for itself."""
    stage = state.append_stage
    if stage == layout.IDLE:
        return
    reach(CrashPoint.REPAIR_STARTED)
    if stage == layout.RECORDED:
        _complete(state, log_files, consume_queues, topics)
        _advance_progress(state)
    else:
        _undo(state, log_files)
        reach(CrashPoint.REPAIR_ZEROED)
    state.append_stage = layout.IDLE


def _undo(state: SharedState, log_files: FileQueue) -> None:
    zeroed = 0
    if state.published_to < state.append_from:  # the append rolled, and may have written a blank record
        blank_end = state.published_to + layout.BLANK_RECORD.size
        zeroed += commit_log.zero(log_files, state.published_to, blank_end)
    # What is published stays, whatever a damaged word says.
    zeroed += commit_log.zero(log_files, max(state.append_from, state.published_to), state.written_to)
    if zeroed:  # or a power cut could mix what was undone with the next records, and a mix can look like a record
        log_files.sync(state.published_to, state.written_to)


def _complete(state: SharedState, log_files: FileQueue, consume_queues: ConsumeQueues, topics: QueueTable) -> None:
    ends, sizes = {}, Counter[MessageQueue]()
    for offset, outcome in commit_log.walk(log_files, state.append_from, state.written_to):
        if not isinstance(outcome, Record):
            path = log_files.path(log_files.base_of(offset))
            raise StoreCorrupt(path, offset - log_files.base_of(offset), "a record of an append under way is damaged")
        message = outcome.message
        if not has_entry(message):
            continue
        queue = MessageQueue(message.topic, message.queue_id)
        consume_queues[queue].write(message.queue_offset, Entry(offset, outcome.size, message.tags_code))
        reach(CrashPoint.REPAIR_ENTRY_WRITTEN)
        ends[queue] = message.queue_offset + 1
        sizes[queue] += outcome.size
    state.published_to = state.written_to
    befores = () if state.is_replica else (state.bytes_before, state.other_bytes_before)
    for queue, before in zip(ends, befores, strict=False):
        topics.set_bytes_in(queue, before + sizes[queue])
    for queue, end in ends.items():  # two at most, but for a step of a replica
        topics.advance_max_offset(queue, end)


def _advance_progress(state: SharedState) -> None:
    """Advance the delay level or the group whose message was passed on, or mark the message of the timer as done.

    Any other ``progress_at`` was damaged, and is left alone.
    """
    group_queue, rest = divmod(state.progress_at - _ADVANCE_TO, layout.GROUP_QUEUE_SLOT.size)
    is_of_a_group = rest == 0 and 0 <= group_queue < state.group_queue_count
    if is_of_a_group or state.progress_at in _SCHEDULE_WORDS:
        state.words.store(state.progress_at, state.progress_to)
    elif state.progress_at in _TIMER_WORDS:
        state.words.set_bits(state.progress_at, state.progress_to)
