"""Faults in records, the files that hold them, and what reads them."""

from __future__ import annotations

from tests.planted.fault import Fault

RECOVERY = "tests/unit/recovery/test_recovery.py"
FILE_LOCK = "tests/unit/files/test_file_lock.py"
VERIFY = "tests/unit/inspect/test_verify.py"
FRAME = "store/kernel/record/frame.pxi"
COMPRESSED_READING = "tests/client/sending/test_compressed_reading.py"
COMPACTED_READING = "tests/unit/upkeep/test_compacted_reading.py"

FAULTS = [
    Fault(
        name="recovery takes every entry for right",
        file="store/kernel/dispatch/entries.pxi",
        old="    return (get_i64(entry) == offset and ",
        new="    return (frame.size > 0 or get_i64(entry) == offset and ",
        tests=RECOVERY,
        select="first_one_that_is_not_right",
    ),
    Fault(
        name="recovery forgets the queues whose entries were right",
        file="store/log/dispatch.py",
        old="    ends = dict(known)\n",
        new="    ends = {}\n",
        tests=RECOVERY,
        select="kept_beside",
    ),
    Fault(
        name="a character that is no digit counts as one in a CRC",
        file=FRAME,
        old="    if ninth > 9 or tenth > 9:\n        return -1\n",
        new="",
        tests=RECOVERY,
        select="written_otherwise",
    ),
    Fault(
        name="a lock that somebody else holds is taken",
        file="store/files/file_lock.py",
        old="        return self._set(byte, fcntl.F_WRLCK)\n",
        new="        self._set(byte, fcntl.F_WRLCK)\n        return True\n",
        tests=FILE_LOCK,
        select="keeps_another_process_out",
    ),
    Fault(
        name="a body is opened as far as it goes",
        file="store/bodies.py",
        old="    opened = opener.decompress(body, limit + 1)\n",
        new="    opened = opener.decompress(body)\n",
        tests=COMPRESSED_READING,
        select="bombs",
    ),
    Fault(
        name="an index slot whose entry does not count yet ends its chain",
        file="store/kernel/dispatch/index.pxi",
        old="        if <int64_t>begin > end_ms or end < begin_ms:\n",
        new="        limit = min(limit, get_i32(header + I_NEXT_NUMBER))\n        if <int64_t>begin > end_ms or end < begin_ms:\n",
        tests="tests/crash/store/test_killed_index.py",
        select="does_not_count_yet",
    ),
    Fault(
        name="a compacted file gets its name before it is on the disk",
        file="store/files/compacted_file.py",
        old="            os.fsync(self._file.fileno())\n",
        new="",
        tests=COMPACTED_READING,
        select="on_the_disk_before",
    ),
    Fault(
        name="a batch with fewer messages than were sent is taken",
        file="store/kernel/record/inner_batch.pxi",
        old="    if count == 0 or (stated is not None and stated != str(count)):\n",
        new="    if count == 0:\n",
        tests="tests/unit/log/test_inner_batch.py",
        select="fewer_messages",
    ),
    Fault(
        name="only the first id of a batch is in the index",
        file="store/kernel/dispatch/index.pxi",
        old="            keys.unique_left = max(1, count_unique_keys(record, frame))\n",
        new="",
        tests="tests/unit/log/test_inner_batch.py",
        select="found_by_its_id",
    ),
    Fault(
        name="a check of a store takes every entry for right",
        file="store/kernel/dispatch/matching.pxi",
        old="            if is_entry_of(match.entries",
        new="            if True or is_entry_of(match.entries",
        tests=VERIFY,
        select="a_broken_invariant",
    ),
    Fault(
        name="a check of a store takes records out of their order for right",
        file="store/kernel/dispatch/matching.pxi",
        old="        if number == match.matched_to:\n            if not",
        new="        if number >= match.matched_from:\n            if not",
        tests="tests/unit/inspect/test_verify_whole.py",
        select="another_order",
    ),
    Fault(
        name="a check of a store takes every key for that of its record",
        file="store/kernel/dispatch/matching.pxi",
        old="                if not has_key(part.at(offset), &frame, get_i32(entry)):\n                    break\n",
        new="",
        tests=VERIFY,
        select="a_broken_invariant",
    ),
    Fault(
        name="a check of a store lets an index entry follow itself",
        file="store/kernel/dispatch/matching.pxi",
        old="* <Py_ssize_t>number) < number:",
        new="* <Py_ssize_t>number) <= number:",
        tests=VERIFY,
        select="a_broken_invariant",
    ),
]
