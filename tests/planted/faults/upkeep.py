"""Faults in upkeep: flushing, retention and compaction."""

from __future__ import annotations

from tests.planted.fault import Fault

TIMER = "tests/client/sending/test_timer.py"
FLUSH = "tests/unit/upkeep/flushing/test_flush.py"
RETENTION = "tests/unit/upkeep/test_retention.py"
COMPACTION = "tests/unit/upkeep/test_compaction.py"
IMAGES = "tests/images/test_images.py"
RETENTION_RULES = "tests/unit/upkeep/test_retention_rules.py"
FLUSH_FAILURE = "tests/unit/upkeep/flushing/test_flush_failure.py"
SYNCED_FILE = "tests/unit/files/test_synced_file.py"
FLUSH_PROGRESS = "tests/unit/upkeep/flushing/test_flush_progress.py"
COMPACTED_READING = "tests/unit/upkeep/test_compacted_reading.py"

STOPPED = "tests/crash/test_stopped.py"
REPLACED = "tests/recovery/test_replaced.py"
STOPPED_WORK = "tests/workers/looking/test_stopped_work.py"

HISTORY = "tests/unit/history/test_recorder.py"
RINGS = "tests/unit/history/test_rings.py"

FAULTS = [
    Fault(
        name="after a reboot counters are compared with those from before",
        file="store/history/recorder.py",
        old="        if head.epoch != self._epoch:\n",
        new="        if False:\n",
        tests=HISTORY,
        select="after_a_reboot",
    ),
    Fault(
        name="the counting epoch does not go on when a store is opened again",
        file="store/recovery/counts.py",
        old="    state.counting_epoch = counts.epoch or state.counting_epoch\n",
        new="",
        tests=HISTORY,
        select="who_comes_next",
    ),
    Fault(
        name="a record that a killed process left at the end of a ring is counted with the next one",
        file="store/history/rings.py",
        old="            self._write(_RINGS_AT[level] + end.at, bytes(min(_RECORD.size, size - end.at)))\n",
        new="",
        tests=RINGS,
        select="at_the_end_of_a_ring",
    ),
    Fault(
        name="readers count a record that no head counts",
        file="store/history/rings.py",
        old="            if first <= number < head.rings[level].number and end <= len(content):\n",
        new="            if first <= number and end <= len(content):\n",
        tests=RINGS,
        select="no_head_counts",
    ),
    Fault(
        name="a pass of the housekeeper that fails is told by its log alone",
        file="store/runtime/passes.py",
        old="                self._note(bit, failed=True)\n",
        new="",
        tests=STOPPED_WORK,
        select="pass_of_the_housekeeper",
    ),
    Fault(
        name="a message that is stepped over is told by a log alone",
        file="store/waiting/schedule.py",
        old="            self._passes.step_over(end - start)\n",
        new="            pass\n",
        tests=STOPPED_WORK,
        select="stepped_over",
    ),
    Fault(
        name="a lock is believed whose name leads to another file",
        file="store/files/lock_place.py",
        old="            if (found.st_dev, found.st_ino) == self._identity:\n",
        new="            if found:\n",
        tests=REPLACED,
        select="lock_that_was_replaced_alone",
    ),
    Fault(
        name="a section under a lock is entered without a look at its name",
        file="store/kernel/locks.pxi",
        old="            self.lock.check_in_place()\n",
        new="",
        tests=REPLACED,
        select="offsets_are_not_written",
    ),
    Fault(
        name="a flush is recorded before it has happened",
        file="store/upkeep/group_commit.py",
        old="        try:\n            self._sync(start, end)\n",
        new="        self._state.flushed_to = max(end, self._state.flushed_to)\n        try:\n            self._sync(start, end)\n",
        tests=FLUSH_FAILURE,
    ),
    Fault(
        name="each flush beside a leader that stands still waits for it anew",
        file="store/upkeep/group_commit.py",
        old="            self._leader = thread, self._state.flushed_to, since ",
        new="            self._leader = thread, self._state.flushed_to, time.monotonic() ",
        tests=STOPPED,
        select="only_the_first_flush",
    ),
    Fault(
        name="a log that was removed is flushed as if it were there",
        file="store/files/synced_file.py",
        old=" or not os.access(path, os.F_OK)",
        new="",
        tests=SYNCED_FILE,
        select="removed",
    ),
    Fault(
        name="a failed flush poisons nothing",
        file="store/upkeep/group_commit.py",
        old="        self._state.poisoned = error.errno or errno.EIO\n",
        new="",
        tests=FLUSH_FAILURE,
    ),
    Fault(
        name="a file is removed before its readers are told",
        file="store/upkeep/retention.py",
        old="        self._state.raise_min_offset(base + self._log_files.file_bytes)\n        reach(CrashPoint.RETENTION_ADVANCED)\n"
        "        self._unlink(base)\n",
        new="        self._unlink(base)\n        reach(CrashPoint.RETENTION_ADVANCED)\n"
        "        self._state.raise_min_offset(base + self._log_files.file_bytes)\n",
        tests=RETENTION,
        select="been_told",
    ),
    Fault(
        name="the wall clock alone says how old a file is",
        file="store/upkeep/retention_rules.py",
        old="now_ms=min(wall, stepless),",
        new="now_ms=wall,",
        tests=RETENTION_RULES,
        select="jumps_in_the_life",
    ),
    Fault(
        name="a failed flush is tried again and believed",
        file="store/upkeep/group_commit.py",
        old="            self._sync(start, end)\n        except OSError as error:\n            self.poison(error)\n",
        new="            self._sync(start, end)\n        except OSError:\n            self._sync(start, end)\n",
        tests=FLUSH_FAILURE,
        select="failed_flush or flush_fails",
    ),
    Fault(
        name="the name of a new file is not flushed",
        file="store/upkeep/group_commit.py",
        old="            sync_directory(self._log_files.directory)\n",
        new="",
        tests=FLUSH,
        select="roll_flushes",
    ),
    Fault(
        name="the checkpoint calls durable what is only published",
        file="store/upkeep/flush.py",
        old="        flushed_to = self._state.flushed_to\n",
        new="        flushed_to = self._state.published_to\n",
        tests=FLUSH_PROGRESS,
        select="checkpoint_says",
    ),
    Fault(
        name="a flush is believed before the disk has answered",
        file="store/upkeep/group_commit.py",
        old="        try:\n            self._sync(start, end)\n",
        new="        self._state.flushed_to = max(end, self._state.flushed_to)\n        try:\n            self._sync(start, end)\n",
        tests=IMAGES,
        select="whatever",
    ),
    Fault(
        name="the mark says that consume queues are on disk before they are",
        file="store/upkeep/flush.py",
        old="flushed.append(start == end or self._flush_queue(slot, start, end, least_pages))",
        new="flushed.append(True)",
        tests=IMAGES,
        select="whatever",
    ),
    Fault(
        name="retention asks nobody before it removes a file",
        file="store/upkeep/retention.py",
        old="        self._before_removal(base + self._log_files.file_bytes)\n",
        new="",
        tests=TIMER,
        select="retention_removes",
    ),
    Fault(
        name="retention does not wait for the compaction of a commit log file",
        file="store/upkeep/retention.py",
        old="        kept = [base for base in bases if base + size > needed_from]\n",
        new="        kept: list[int] = []\n",
        tests=COMPACTED_READING,
        select="waits_for_the_compaction",
    ),
    Fault(
        name="a pass takes over what a later message has replaced",
        file="store/upkeep/compaction_pass.py",
        old=" and key_and_body_size(message)[0] not in self._latest:\n",
        new=":\n",
        tests=COMPACTION,
        select="later_pass",
    ),
    Fault(
        name="a pass takes what is not flushed",
        file="store/upkeep/compaction.py",
        old="end_below(self._state.flushed_to)",
        new="end_below(self._state.published_to)",
        tests=COMPACTION,
        select="not_flushed",
    ),
    Fault(
        name="retention believes a name that a power cut takes back",
        file="store/upkeep/compaction.py",
        old="            sync_directory(file.path.parent)  #",
        new="            pass  #",
        tests=COMPACTED_READING,
        select="name_durable",
    ),
    Fault(
        name="entries of an archiver that was killed stay in the archive",
        file="rmqclient/archive/archiver.py",
        old="                self._queue_archiver.trim(queue)",
        new="                pass",
        tests="tests/unit/archive/test_archive_kills.py",
        select="entries_whose_messages and after",
    ),
]
