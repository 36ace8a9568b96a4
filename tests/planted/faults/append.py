"""Faults in an append: the kernel's order of stores, plans and pages, and the repair of an interrupted one."""

from __future__ import annotations

from tests.planted.fault import Fault

KILLED_APPEND = "tests/crash/store/test_killed_append.py"
KILLED_DELIVERY = "tests/crash/client/test_killed_delivery.py"
KILLED_TRANSACTION = "tests/crash/store/test_killed_transaction.py"
KILLED_TIMER = "tests/crash/store/test_killed_timer.py"
TIMER = "tests/client/sending/test_timer.py"
TRANSACTION = "tests/unit/waiting/test_transaction.py"
RECOVERY = "tests/unit/recovery/test_recovery.py"
RETENTION = "tests/unit/upkeep/test_retention.py"
RESIDENT = "tests/unit/files/test_resident.py"
GROWING = "tests/unit/log/test_growing_queues.py"
CLONES = "tests/crash/store/test_copy_on_write.py"
APPEND = "store/kernel/append/section.pxi"

FAULTS = [
    Fault(
        name="records are published before they are copied",
        file=APPEND,
        old="    copy_records(section, target)\n",
        new="    store64(shared + H_PUBLISHED_TO, end)\n    copy_records(section, target)\n",
        tests=KILLED_APPEND,
        select="record_half_copied",
    ),
    Fault(
        name="records are announced before they are copied",
        file=APPEND,
        old="    store64(shared + H_APPEND_STAGE, COPYING)\n",
        new="    store64(shared + H_APPEND_STAGE, RECORDED)\n",
        tests=KILLED_APPEND,
        select="record_half_copied",
    ),
    Fault(
        name="the queue is published before its entries are written",
        file=APPEND,
        old="    write_entries(section)\n",
        new="    store64_seq(section.slot + Q_MAX_OFFSET, section.queue_offset + section.plan.count)\n    write_entries(section)\n",
        tests=KILLED_APPEND,
        select="entry_half_written",
    ),
    Fault(
        name="the size of an entry is written before its offset",
        file=APPEND,
        old="        put_i64(entry, commit_log_offset)\n        keep_program_order()\n        if number == 0:\n",
        new="        put_i32(entry + E_SIZE, section.sizes[number])\n        if number == 0:\n",
        tests=KILLED_APPEND,
        select="entry_half_written",
    ),
    Fault(
        name="a file ends without a blank record",
        file=APPEND,
        old="        put_i32(blank + R_MAGIC, BLANK_MAGIC)\n",
        new="        pass\n",
        tests=KILLED_APPEND,
        select="rolls and append_finished",
    ),
    Fault(
        name="a repair leaves the bytes of a torn record",
        file="store/append/appending.py",
        old="commit_log.zero(log_files, max(state.append_from, state.published_to), state.written_to)\n",
        new="0\n",
        tests=KILLED_APPEND,
        select="record_half_copied",
    ),
    Fault(
        name="a repair writes no entries",
        file="store/append/appending.py",
        old="        consume_queues[queue].write(message.queue_offset, Entry(offset, outcome.size, message.tags_code))\n",
        new="",
        tests=KILLED_APPEND,
        select="records_announced",
    ),
    Fault(
        name="a repair does not count what it has written",
        file="store/append/appending.py",
        old="        topics.advance_max_offset(queue, end)\n",
        new="        pass\n",
        tests=KILLED_APPEND,
        select="records_announced",
    ),
    Fault(
        name="removed files stay mapped",
        file="store/append/releaser.py",
        old="        mappings.release_removed()\n",
        new="        pass\n",
        tests=RETENTION,
        select="space_comes_back",
    ),
    Fault(
        name="what a repair has undone comes back",
        file="store/append/appending.py",
        old="        log_files.sync(state.published_to, state.written_to)\n",
        new="        pass\n",
        tests=RECOVERY,
        select="undone_on_disk",
    ),
    Fault(
        name="a delivery counts before it is recorded",
        file=APPEND,
        old="    copy_records(section, target)\n",
        new=(
            "    if section.plan.progress_at:\n"
            "        store64(shared + section.plan.progress_at, section.plan.progress_from + 1)\n"
            "    copy_records(section, target)\n"
        ),
        tests=KILLED_DELIVERY,
        select="record_half_copied",
    ),
    Fault(
        name="a delivery that a repair completes does not count",
        file="store/append/appending.py",
        old="        _advance_progress(state)\n",
        new="",
        tests=KILLED_DELIVERY,
        select="records_announced",
    ),
    Fault(
        name="an append looks at no guarded word",
        file=APPEND,
        old="    if not guarded(section):\n        return OUTDATED\n",
        new="",
        tests=TRANSACTION,
        select="in_between_is_noticed",
    ),
    Fault(
        name="the operation is published before its entry is written",
        file=APPEND,
        old="    write_entries(section)\n    reach_point(AT_ENTRIES_WRITTEN)\n",
        new="    if section.other_slot != NULL:\n"
        "        store64_seq(section.other_slot + Q_MAX_OFFSET, section.other_queue_offset + 1)\n"
        "    write_entries(section)\n    reach_point(AT_ENTRIES_WRITTEN)\n",
        tests=KILLED_TRANSACTION,
        select="killed_decision and go_on and 0-entry_half_written",
    ),
    Fault(
        name="the repair of an append forgets the progress of a group",
        file="store/append/appending.py",
        old="    if is_of_a_group or state.progress_at in _SCHEDULE_WORDS:\n",
        new="    if state.progress_at in _SCHEDULE_WORDS:\n",
        tests=KILLED_TRANSACTION,
        select="killed_check and go_on",
    ),
    Fault(
        name="a renewal does not move the progress",
        file="store/kernel/append/appender.pxi",
        old="        self.move_progress(staging, progress_at, half)\n",
        new="",
        tests=KILLED_TRANSACTION,
        select="killed_check and go_on and 0-append_finished",
    ),
    Fault(
        name="a committed message has no offset of its half message",
        file="store/kernel/append/appender.pxi",
        old="            put_i64(start + prepared_offset_at(start), half.commit_log_offset)\n",
        new="",
        tests=TRANSACTION,
        select="bytes_of_a_broker",
    ),
    Fault(
        name="the end of a wait counts before it is recorded",
        file=APPEND,
        old="    copy_records(section, target)\n",
        new="    if section.plan.done_at:\n"
        "        or64(shared + section.plan.done_at, section.plan.done_bit)\n"
        "    copy_records(section, target)\n",
        tests=KILLED_TIMER,
        select="killed_delivery and go_on and 0-record_half_copied",
    ),
    Fault(
        name="an append does not look whether the message of the timer is done",
        file=APPEND,
        old="    if section.plan.done_at and is_done(",
        new="    if False and is_done(",
        tests=TIMER,
        select="done_already",
    ),
    Fault(
        name="the end of a wait that a repair completes does not count",
        file="store/append/appending.py",
        old="        state.words.set_bits(state.progress_at, state.progress_to)\n",
        new="        pass\n",
        tests=KILLED_TIMER,
        select="killed_delivery and go_on and records_announced",
    ),
    Fault(
        name="the pages that were passed stay",
        file="store/kernel/resident.pxi",
        old="                madvise(pages[number].address, pages[number].size, MADV_DONTNEED)\n",
        new="                pass\n",
        tests=RESIDENT,
        select="reads_a_whole_log",
    ),
    Fault(
        name="the pages that were populated ahead go, too",
        file="store/kernel/resident.pxi",
        old="    if mapping.end_word == NULL:\n",
        new="    if True:\n",
        tests=RESIDENT,
        select="populated_ahead",
    ),
    Fault(
        name="a store into a block that a clone shares is a signal on a full disk",
        file="store/files/mapped_file.py",
        old=", path=os.fsencode(path))",
        new=")",
        tests=CLONES,
        select="runs_full_at_once",
    ),
    Fault(
        name="a store that finds no block beside free ones is given up at once",
        file="store/kernel/room.h",
        old="    SYNCS_WITH_ROOM = 30, ",
        new="    SYNCS_WITH_ROOM = 1, ",
        tests=CLONES,
        select="longer_than_a_moment",
    ),
    Fault(
        name="entries are written behind the blocks of their file",
        file="store/files/file_queue.py",
        old="            mapping.reserved = wanted\n",
        new="            mapping.reserved = self.file_bytes\n",
        tests=GROWING,
        select="takes_the_disk or finds_no_room",
    ),
]
