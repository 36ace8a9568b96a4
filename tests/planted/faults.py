"""Faults that were made on purpose: one changed piece of text each, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KILLED_APPEND = "tests/crash/store/test_killed_append.py"
KILLED_DELIVERY = "tests/crash/client/test_killed_delivery.py"
KILLED_TRANSACTION = "tests/crash/store/test_killed_transaction.py"
KILLED_INBOX = "tests/crash/client/test_killed_inbox.py"
KILLED_ONCE = "tests/crash/store/test_killed_once.py"
KILLED_OUTBOX = "tests/crash/client/test_killed_outbox.py"
KILLED_CRON = "tests/crash/client/test_killed_cron.py"
CRON = "tests/client/consuming/test_cron.py"
KILLED_TIMER = "tests/crash/store/test_killed_timer.py"
TIMER = "tests/client/sending/test_timer.py"
TRANSACTION = "tests/unit/waiting/test_transaction.py"
KILLED_ACKNOWLEDGEMENT = "tests/crash/client/test_killed_acknowledgement.py"
KILLED_SEEK = "tests/crash/client/test_killed_seek.py"
KILLED_OPENING = "tests/crash/store/test_killed_opening.py"
ACKNOWLEDGEMENT = "tests/unit/kernel/test_acknowledgement.py"
TAG_SKIPPING = "tests/unit/kernel/test_tag_skipping.py"
RECOVERY = "tests/unit/recovery/test_recovery.py"
FLUSH = "tests/unit/upkeep/test_flush.py"
RETENTION = "tests/unit/upkeep/test_retention.py"
COMPACTION = "tests/unit/upkeep/test_compaction.py"
FILE_LOCK = "tests/unit/files/test_file_lock.py"
RUNNING = "tests/unit/runtime/test_running.py"
ATTEMPTS = "tests/groups/delivery/test_attempts.py"
RETRY = "tests/client/consuming/test_retry.py"
REQUESTS = "tests/client/sending/test_requests.py"
RETRY_RECORDS = "tests/unit/client/test_retry.py"
TABLE = "tests/client/tables/test_table.py"
FLIPS = "tests/torture/quick/test_flips.py"
IMAGES = "tests/images/test_images.py"
COMPRESSION = "tests/client/sending/test_compression.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``old`` stands in ``file`` exactly once and is replaced by ``new``."""

    name: str
    file: str
    old: str
    new: str
    tests: str
    """File with the tests that must fail."""

    select: str = ""
    """Which of them, as for pytest's ``-k``; empty for all."""

    @property
    def is_compiled(self) -> bool:
        """Whether the kernel has to be built again."""
        return Path(self.file).suffix in {".pyx", ".pxi", ".h"}


MESSAGE = "store/kernel/record/message.pxi"
APPEND = "store/kernel/append/section.pxi"
ACKNOWLEDGE = "store/kernel/groups/acknowledge.pxi"
GRANT = "store/kernel/groups/grant.pxi"

FAULTS = [
    # --- the order of the stores in an append -----------------------------------------------------
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
        new="    store64_seq(section.slot + Q_MAX_OFFSET, section.queue_offset + section.count)\n    write_entries(section)\n",
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
    # --- acknowledgements -------------------------------------------------------------------------
    Fault(
        name="an acknowledgement with an old epoch is taken",
        file=ACKNOWLEDGE,
        old="    if load64(slot + G_EPOCH) != epoch:\n        return 0\n",
        new="",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="refused",
    ),
    Fault(
        name="the committed offset moves before the bits below it are cleared",
        file=ACKNOWLEDGE,
        old="    cdef uint64_t bits\n    while offset < target:\n",
        new="    cdef uint64_t bits\n    store64(slot + G_COMMITTED, target)\n    reach_point(AT_ACK_CLEARED)\n"
        "    while offset < target:\n",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="ack_cleared and hand_over",
    ),
    Fault(
        name="a message that the committed offset has passed is taken",
        file=GRANT,
        old=" or offset < load64(self.slot + G_ADVANCE_TO)",
        new="",
        tests=ACKNOWLEDGEMENT,
    ),
    Fault(
        name="a skip with an old epoch is taken",
        file=ACKNOWLEDGE,
        old="    if epoch != load64(slot + G_EPOCH):\n        return 0\n    settle_dead_advance(slot)\n    reach_point(AT_ACK_LOCKED)\n",
        new="    settle_dead_advance(slot)\n    reach_point(AT_ACK_LOCKED)\n",
        tests=TAG_SKIPPING,
        select="loses_the_queue",
    ),
    Fault(
        name="a skip finishes the wanted message behind it, too",
        file=GRANT,
        old="outcome = skip_section(skip.slot, skip.epoch, skip.offset, wanted)\n",
        new="outcome = skip_section(skip.slot, skip.epoch, skip.offset, wanted + (wanted < end))\n",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="skips",
    ),
    Fault(
        name="a skip moves the committed offset over a message in flight",
        file=ACKNOWLEDGE,
        old="    reach_point(AT_ACK_MARKED)\n    advance(slot, committed)\n    return 1\n\n\ncdef int expire_section",
        new="    reach_point(AT_ACK_MARKED)\n    store64(slot + G_ADVANCE_TO, max(end, committed))\n    settle_advance(slot)\n"
        "    return 1\n\n\ncdef int expire_section",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="skips",
    ),
    Fault(
        name="the bits that a skip sets are one too many at the end of a word",
        file=ACKNOWLEDGE,
        old="    cdef uint64_t count = min(64 - first, end - offset[0])\n    offset[0] += count\n",
        new="    cdef uint64_t count = min(64 - first, end - offset[0])\n    offset[0] += count\n"
        "    count += 0 < count < 64 - first\n",
        tests=TAG_SKIPPING,
        select="exactly_the_wanted_ones",
    ),
    Fault(
        name="a skip does not see an entry that points below the log",
        file=GRANT,
        old="            found |= <uint64_t>get_i64(entry + number * ENTRY_SIZE) < skip.log_begin\n",
        new="            pass\n",
        tests=TAG_SKIPPING,
        select="damaged_entry",
    ),
    # --- filters ----------------------------------------------------------------------------------
    Fault(
        name="a missing property is different from everything",
        file="rmqclient/filters/sql92.py",
        old="            return True if other is None else None\n",
        new="            return other is None\n",
        tests="tests/unit/filters/test_sql92.py",
        select="matches_in_rocketmq",
    ),
    Fault(
        name="a comparison that fails is only false",
        file="rmqclient/filters/sql92.py",
        old='    raise _CannotCompareError(f"{text!r} is no integer of {bits} bits")\n',
        new="    return 1 << 64\n",
        tests="tests/unit/filters/test_sql92.py",
        select="slow_evaluator",
    ),
    Fault(
        name="what follows a whole expression is ignored",
        file="rmqclient/filters/sql92_grammar.py",
        old='        if self._token.kind != "end":\n',
        new='        if self._token.kind == "never":\n',
        tests="tests/unit/filters/test_sql92.py",
        select="bad_expression",
    ),
    # --- repair -----------------------------------------------------------------------------------
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
    # --- opening and recovery ---------------------------------------------------------------------
    Fault(
        name="recovery leaves what stands behind the last record",
        file="store/recovery/recovery.py",
        old="commit_log.zero(log_files, chosen.log_end, file_end) if chosen.cut_reason is not None else 0\n",
        new="0\n",
        tests=RECOVERY,
        select="torn or rubbish",
    ),
    Fault(
        name="recovery leaves entries without a record",
        file="store/recovery/recovery.py",
        old="        if queues[queue].cut(end):\n            recovered.cut_queues.append(queue)\n",
        new="",
        tests=KILLED_APPEND,
        select="entries_written",
    ),
    Fault(
        name="the runtime file is built in place of the old one",
        file="store/runtime/shared_state.py",
        old='_BUILDING = "shared.building"\n',
        new="_BUILDING = FILE_NAME\n",
        tests=KILLED_OPENING,
        select="file_allocated",
    ),
    Fault(
        name="acknowledgements ahead of the committed offset are forgotten when everybody dies",
        file="store/recovery/recovery.py",
        old='GroupProgress(advance_to, bits, slot.load("epoch"), interrupted, held, paused)',
        new='GroupProgress(advance_to, 0, slot.load("epoch"), interrupted, held, paused)',
        tests=KILLED_ACKNOWLEDGEMENT,
        select="never and reopen",
    ),
    Fault(
        name="a seek leaves the present epoch valid",
        file="store/runtime/group_table.py",
        old='        self.store("epoch", self.load("epoch") + 1)\n',
        new="",
        tests=KILLED_SEEK,
        select="to-2400 and hand_over",
    ),
    Fault(
        name="a seek clears the acknowledgements before it says where to",
        file="store/runtime/group_table.py",
        old="        reach(CrashPoint.SEEK_FENCED)\n",
        new="        self._put_bits(0)\n        reach(CrashPoint.SEEK_FENCED)\n",
        tests=KILLED_SEEK,
        select="to-2400 and seek_fenced",
    ),
    Fault(
        name="a seek that died is not completed by the next opening",
        file="store/recovery/recovery.py",
        old="        slot.finish_seek()\n",
        new="",
        tests=KILLED_SEEK,
        select="to-2400 and reopen",
    ),
    Fault(
        name="the slots of a new group are counted one by one",
        file="store/runtime/group_table.py",
        old="                reach(CrashPoint.GROUP_SLOT_FILLED)\n",
        new="                self._state.group_queue_count = number + 1\n                reach(CrashPoint.GROUP_SLOT_FILLED)\n",
        tests=KILLED_SEEK,
        select="all_or_none",
    ),
    Fault(
        name="a file of offsets is written before its digest is announced",
        file="store/settings/config_file.py",
        old="    announce(_digest(text))\n    write(path, text)\n",
        new="    write(path, text)\n    announce(_digest(text))\n",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="killed_write",
    ),
    Fault(
        name="an offset that a power cut withdrew is believed after the next one",
        file="store/recovery/opening.py",
        old="    if withdrawn:\n        config_file.write_consumer_offsets(root, withdrawn)\n",
        new="",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="withdrew",
    ),
    Fault(
        name="a new store has no durable mark",
        file="store/recovery/opening.py",
        old=" or checkpoint.read(root)[1] is None:",
        new=":",
        tests=RECOVERY,
        select="never_flushed",
    ),
    # --- flushing ---------------------------------------------------------------------------------
    Fault(
        name="a flush is recorded before it has happened",
        file="store/upkeep/flush.py",
        old="        try:\n            self._sync(start, end)\n",
        new="        self._state.flushed_to = max(end, self._state.flushed_to)\n        try:\n            self._sync(start, end)\n",
        tests=FLUSH,
    ),
    Fault(
        name="a failed flush poisons nothing",
        file="store/upkeep/flush.py",
        old="        self._state.poisoned = error.errno or errno.EIO\n",
        new="",
        tests=FLUSH,
    ),
    # --- retention --------------------------------------------------------------------------------
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
        name="removed files stay mapped",
        file="store/append/releaser.py",
        old="        mappings.release_removed()\n",
        new="        pass\n",
        tests=RETENTION,
        select="space_comes_back",
    ),
    Fault(
        name="the wall clock alone says how old a file is",
        file="store/upkeep/retention.py",
        old="now_ms=min(wall, stepless),",
        new="now_ms=wall,",
        tests=RETENTION,
        select="jumps_in_the_life",
    ),
    Fault(
        name="a failed flush is tried again and believed",
        file="store/upkeep/flush.py",
        old="            self._sync(start, end)\n        except OSError as error:\n            self._poison(error)\n",
        new="            self._sync(start, end)\n        except OSError:\n            self._sync(start, end)\n",
        tests=FLUSH,
        select="failed_flush or flush_fails",
    ),
    Fault(
        name="the name of a new file is not flushed",
        file="store/upkeep/flush.py",
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
        tests=FLUSH,
        select="checkpoint_says",
    ),
    Fault(
        name="recovery takes every entry for right",
        file="store/kernel/record/dispatch.pxi",
        old="        return (get_i64(entry) == offset and ",
        new="        return (frame.size > 0 or get_i64(entry) == offset and ",
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
        file=MESSAGE,
        old="    if ninth > 9 or tenth > 9:\n        return -1\n",
        new="",
        tests=RECOVERY,
        select="written_otherwise",
    ),
    # --- damage -----------------------------------------------------------------------------------
    Fault(
        name="recovery cuts the log at a record damaged below the durable mark",
        file="store/recovery/log_scan.py",
        old="        if end >= sure_to and not goes_on:",
        new="        if end >= 0:",
        tests=RECOVERY,
        select="damaged_record_is_kept",
    ),
    Fault(
        name="a runtime file with slots that nobody wrote is believed",
        file="store/runtime/shared_state.py",
        old="    return state if _has_sound_tables(state) else None\n",
        new="    return state\n",
        tests=FLIPS,
        select="nobody_wrote",
    ),
    Fault(
        name="a consumer gets a record whose CRC is wrong",
        file=GRANT,
        old="            if found == IS_RECORD and (frame.size != size",
        new="            if found == BAD_CRC:\n                found = IS_RECORD\n"
        "            if found == IS_RECORD and (frame.size != size",
        tests=RECOVERY,
        select="damaged_while_the_store_is_open",
    ),
    Fault(
        name="an entry may point to a record of another topic",
        file=GRANT,
        old="\n                                       or not has_topic(self.queue_slot, at, &frame)):",
        new="):",
        tests=FLIPS,
        select="another_topic",
    ),
    # --- locks ------------------------------------------------------------------------------------
    Fault(
        name="a lock that somebody else holds is taken",
        file="store/files/file_lock.py",
        old="        return self._set(byte, fcntl.F_WRLCK)\n",
        new="        self._set(byte, fcntl.F_WRLCK)\n        return True\n",
        tests=FILE_LOCK,
        select="keeps_another_process_out",
    ),
    # --- orders -----------------------------------------------------------------------------------
    Fault(
        name="a later message of a key runs while an earlier one is held",
        file="rmqclient/delivery/modes/lanes.py",
        old="                lane = lanes.get(key)\n",
        new="                lane = None\n",
        tests="tests/client/consuming/test_key_ordered.py",
        select="holds_its_key",
    ),
    Fault(
        name="a held key is given to a thread before its pause is over",
        file="rmqclient/delivery/modes/lanes.py",
        old="self._held[0][0] <= time.monotonic():",
        new="self._held[0][0] >= 0:",
        tests="tests/client/consuming/test_key_ordered.py",
        select="pause",
    ),
    Fault(
        name="a suspended queue goes on with the next message",
        file="rmqclient/delivery/modes/orderly.py",
        old="[message.again() for message in messages] + batch[done + len(messages) :]",
        new="batch[done + len(messages) :] + [message.again() for message in messages]",
        tests="tests/client/consuming/test_ordered.py",
        select="suspends_its_queue",
    ),
    Fault(
        name="attempts are forgotten when everybody dies",
        file="store/recovery/recovery.py",
        old='held = slot.load("held_offset"), slot.load("held_attempts")',
        new="held = (0, 0)",
        tests="tests/unit/runtime/test_attempts.py",
        select="everybody",
    ),
    Fault(
        name="a queue whose order is kept is handed over while its handler runs",
        file="rmqclient/consuming/rebalance.py",
        old="(self._delivery.keeps_order or time.monotonic() < until)",
        new="time.monotonic() < until",
        tests="tests/client/consuming/test_ordered.py",
        select="not_handed_over",
    ),
    # --- power cuts -------------------------------------------------------------------------------
    Fault(
        name="a flush is believed before the disk has answered",
        file="store/upkeep/flush.py",
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
        name="the runtime file of another boot is believed",
        file="store/runtime/shared_state.py",
        old='    if header["boot_id"].decode("ascii", "replace") != boot_id():\n',
        new='    if header["boot_id"] is None:\n',
        tests=IMAGES,
        select="whatever",
    ),
    Fault(
        name="a file of settings gets its name before it is on disk",
        file="store/settings/config_file.py",
        old="                os.fsync(file.fileno())\n",
        new="",
        tests=IMAGES,
        select="whatever",
    ),
    Fault(
        name="a new store has no durable mark",
        file="store/recovery/opening.py",
        old="    if ranges or checkpoint.read(root)[1] is None:",
        new="    if ranges:",
        tests=RECOVERY,
        select="never_flushed",
    ),
    Fault(
        name="an entry that reached the disk in part is counted",
        file="store/recovery/recovery.py",
        old="    while end > first and _is_torn(files, queue, entries, end - 1, commit_log_offset):\n        end -= 1\n",
        new="",
        tests=IMAGES,
        select="whatever",
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
        name="progress that a power cut took back is kept on disk",
        file="store/recovery/opening.py",
        old="        config_file.write_consumer_offsets(root, withdrawn)\n",
        new="        pass\n",
        tests=RECOVERY,
        select="taken_back",
    ),
    # --- attempts, retries and dead letters -------------------------------------------------------
    Fault(
        name="a message is acknowledged before its retry is stored",
        file="rmqclient/delivery/modes/send_back.py",
        old="            outcome = self._failures.send_back(message, failure, *earlier)\n",
        new="            queue.grant.acknowledge(message)\n"
        "            outcome = self._failures.send_back(message, failure, *earlier)\n",
        tests=RETRY,
        select="cannot_be_stored",
    ),
    Fault(
        name="the attempt is not told before the handler runs",
        file="rmqclient/delivery/modes/concurrent.py",
        old="            begin(message)\n",
        new="",
        tests=ATTEMPTS,
        select="at_once",
    ),
    Fault(
        name="attempts are forgotten when every process died",
        file="store/recovery/opening.py",
        old="            _restore_interrupted(state, slot, progress, high)\n",
        new="",
        tests=RUNNING,
        select="all_processes",
    ),
    Fault(
        name="a slot that tells of an unfinished message is used again",
        file="rmqclient/groups/running.py",
        old='        return not slot.unfinished(fields["queue_offset"], fields["last_offset"])\n',
        new="        return True\n",
        tests=RUNNING,
        select="kept_until",
    ),
    Fault(
        name="a message that killed two processes is run in place again",
        file="rmqclient/delivery/modes/send_back.py",
        old="_DEATHS_AT_MOST = 2\n",
        new="_DEATHS_AT_MOST = 1_000\n",
        tests=ATTEMPTS,
        select="second_death",
    ),
    Fault(
        name="the origin of a message is that of its last copy",
        file="rmqclient/failures/retry.py",
        old='            "ORIGIN_MESSAGE_ID": origin_message_id(message),\n            "WAIT"',
        new='            "ORIGIN_MESSAGE_ID": message.offset_message_id,\n            "WAIT"',
        tests=RETRY_RECORDS,
        select="set_once",
    ),
    # --- delayed messages -------------------------------------------------------------------------
    Fault(
        name="a delivery counts before it is recorded",
        file=APPEND,
        old="    copy_records(section, target)\n",
        new=(
            "    if section.progress_at:\n"
            "        store64(shared + section.progress_at, section.progress_from + 1)\n"
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
        name="what was delivered before a power cut is not looked for",
        file="store/waiting/schedule.py",
        old="            offset = copies.behind(level, offset, high)\n",
        new="            pass\n",
        tests=KILLED_DELIVERY,
        select="power_cut",
    ),
    Fault(
        name="deliveries are written down before they are on the disk",
        file="store/waiting/schedule.py",
        old="            wait_until_flushed(self._state.published_to)\n",
        new="",
        tests="tests/unit/waiting/test_schedule.py",
        select="progress_is_written",
    ),
    Fault(
        name="deliveries that a power cut took back are kept on disk",
        file="store/waiting/schedule.py",
        old="        config_file.write_delay_offsets(root, withdrawn)\n",
        new="        pass\n",
        tests="tests/unit/waiting/test_schedule.py",
        select="outside_of_its_queue",
    ),
    # --- transactions -----------------------------------------------------------------------------
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
        select="killed_decision and go_on and 0-7",
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
        old="            self._check_word(progress_at)\n            plan.progress_at = progress_at\n",
        new="",
        tests=KILLED_TRANSACTION,
        select="killed_check and go_on and 0-11",
    ),
    Fault(
        name="a renewal is not looked for when an older half message is decided",
        file="store/waiting/transaction.py",
        old="        return renewals[-1] if renewals else half\n",
        new="        return half\n",
        tests=TRANSACTION,
        select="decides_its_renewal",
    ),
    Fault(
        name="what the log says is not looked for in a new runtime file",
        file="store/waiting/transaction.py",
        old="        if self._state.words.load(_SETTLED_AT):\n",
        new="        if self._state.words.load(_SETTLED_AT) or True:\n",
        tests=KILLED_TRANSACTION,
        select="without_its_operation or power_cut",
    ),
    Fault(
        name="the progress is written down before it is on the disk",
        file="store/waiting/transaction.py",
        old="                self._wait_until_flushed(self._state.published_to)\n",
        new="",
        tests=TRANSACTION,
        select="not_flushed",
    ),
    Fault(
        name="a committed message has no offset of its half message",
        file="store/kernel/append/appender.pxi",
        old="                put_i64(start + reconsume_times_at(start) + R_PREPARED_OFFSET - R_RECONSUME_TIMES,"
        " half.commit_log_offset)\n",
        new="",
        tests=TRANSACTION,
        select="bytes_of_a_broker",
    ),
    Fault(
        name="a relay believes that claimed rows were never sent",
        file="rmqclient/databases/outbox.py",
        old="                if found:\n",
        new="                if False:\n",
        tests=KILLED_OUTBOX,
        select="sqlite and killed_relay",
    ),
    Fault(
        name="a relay looks for rows before it settles an interrupted append",
        file="rmqclient/databases/outbox.py",
        old="        self._store.settle_appends()\n",
        new="",
        tests=KILLED_OUTBOX,
        select="sqlite and killed_relay",
    ),
    # --- bodies that are compressed ---------------------------------------------------------------
    Fault(
        name="a body is opened as far as it goes",
        file="store/bodies.py",
        old="    opened = opener.decompress(body, limit + 1)\n",
        new="    opened = opener.decompress(body)\n",
        tests=COMPRESSION,
        select="bombs",
    ),
    Fault(
        name="a limit on bodies counts what is left of them",
        file="rmqclient/sending/compressor.py",
        old="self._over_bytes <= len(body) <= max_body_bytes",
        new="self._over_bytes <= len(body)",
        tests=COMPRESSION,
        select="as_it_is_sent",
    ),
    Fault(
        name="opened bodies are kept until the last one of a take is finished",
        file=GRANT,
        old="        message.opened = None  # who took it with others holds it until all of them are finished\n",
        new="",
        tests=COMPRESSION,
        select="bombs or no_longer_keeps",
    ),
    # --- requests ---------------------------------------------------------------------------------
    Fault(
        name="every request passes over the replies that have come",
        file="rmqclient/sending/request.py",
        old="            if not self._awaited:  # what stands",
        new="            if True:  # what stands",
        tests=REQUESTS,
        select="passed_over",
    ),
    # --- once -------------------------------------------------------------------------------------
    Fault(
        name="a sender by key looks before it settles an interrupted append",
        file="store/waiting/once.py",
        old="        self._settle()\n",
        new="",
        tests=KILLED_ONCE,
        select="killed_sender",
    ),
    Fault(
        name="an index slot whose entry does not count yet ends its chain",
        file="store/log/index_file.py",
        old="self.slot(key_hash), self.entries\n",
        new="self.slot(key_hash), min(header.next_number, self.entries)\n",
        tests="tests/crash/store/test_killed_index.py",
        select="does_not_count_yet",
    ),
    Fault(
        name="a message is in the inbox before its handler is done",
        file="rmqclient/databases/inbox.py",
        old="        reach(CrashPoint.INBOX_MARKED)\n",
        new="        connection.commit()\n        reach(CrashPoint.INBOX_MARKED)\n",
        tests=KILLED_INBOX,
        select="sqlite and killed_handler",
    ),
    # --- schedules of applications ----------------------------------------------------------------
    Fault(
        name="a sender of a schedule does not look whether its tick has a message",
        file="rmqclient/schedules/cron_sender.py",
        old="            if self._store.messages_by_key(self._cron.topic, self._cron.key(tick), limit=1):\n",
        new="            if False:\n",
        tests=KILLED_CRON,
    ),
    Fault(
        name="a sender of a schedule looks before it settles an interrupted append",
        file="rmqclient/schedules/cron_sender.py",
        old="            self._store.settle_appends()\n",
        new="",
        tests=KILLED_CRON,
    ),
    Fault(
        name="senders of a schedule look and send side by side",
        file="rmqclient/schedules/cron_sender.py",
        old="        with self._alone():\n",
        new="        if True:\n",
        tests=CRON,
        select="threads",
    ),
    Fault(
        name="a sender that starts knows of no tick before",
        file="rmqclient/schedules/cron_sender.py",
        old="        after = now - self._cron.misfire_grace\n",
        new="        after = now\n",
        tests=CRON,
        select="within_the_grace",
    ),
    # --- the timer --------------------------------------------------------------------------------
    Fault(
        name="the end of a wait counts before it is recorded",
        file=APPEND,
        old="    copy_records(section, target)\n",
        new="    if section.done_at:\n"
        "        or64(shared + section.done_at, section.done_bit)\n"
        "    copy_records(section, target)\n",
        tests=KILLED_TIMER,
        select="killed_delivery and go_on and 0-record_half_copied",
    ),
    Fault(
        name="an append does not look whether the message of the timer is done",
        file=APPEND,
        old="    if section.done_at and is_done(",
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
        name="the ends of waits are not looked for in the log",
        file="store/waiting/timer_restore.py",
        old="            if number in self._known and number >= self._low and self._is_of(number, offset, key):\n",
        new="            if False:\n",
        tests=KILLED_TIMER,
        select="power_cut",
    ),
    Fault(
        name="any record that names a message of the timer is believed to be its end",
        file="store/waiting/timer_restore.py",
        old="        return offset < end_offset and (key is None or key == own.encode())\n",
        new="        return True\n",
        tests=TIMER,
        select="one_after_the_other",
    ),
    Fault(
        name="bits of the timer are cleared unannounced",
        file="store/waiting/timer_bits.py",
        old="            self._state.words.store(_CLEARING_TO, target)\n",
        new="",
        tests=KILLED_TIMER,
        select="move_over",
    ),
    Fault(
        name="bits of the timer are cleared before a cut-short append has set its own",
        file="store/waiting/timer_bits.py",
        old="            repair(self._state, self._log_files, self._consume_queues, self._topics)\n",
        new="",
        tests=KILLED_TIMER,
        select="one_turn_later",
    ),
    Fault(
        name="what is done in the timer is written down before it is on the disk",
        file="store/waiting/timer.py",
        old="        self._wait_until_flushed(flushed_to)\n",
        new="",
        tests=TIMER,
        select="written_when_it_is_on_the_disk",
    ),
    Fault(
        name="a file is removed before what waits in it is on the disk elsewhere",
        file="store/waiting/timer.py",
        old="            self._wait_until_flushed(self._state.published_to)\n",
        new="            pass\n",
        tests=TIMER,
        select="retention_removes",
    ),
    Fault(
        name="retention asks nobody before it removes a file",
        file="store/upkeep/retention.py",
        old="        self.before_removal(base + self._log_files.file_bytes)\n",
        new="",
        tests=TIMER,
        select="retention_removes",
    ),
    Fault(
        name="the timer delivers what is due a moment later",
        file="store/waiting/timer.py",
        old="self._heap.pop_due(self.now_ms(), _SLICE)",
        new="self._heap.pop_due(self.now_ms() + 20, _SLICE)",
        tests="tests/torture/quick/test_delays.py",
        select="random_kills",
    ),
    # --- tables -----------------------------------------------------------------------------------
    Fault(
        name="an older message of another queue replaces a newer one",
        file="rmqclient/tables/table.py",
        old="            elif told.get(key, -1) <= offset and before.get(key, -1) <= offset:\n",
        new="            elif True:\n",
        tests=TABLE,
        select="older_message",
    ),
    # --- compact topics ---------------------------------------------------------------------------
    Fault(
        name="retention does not wait for the compaction of a commit log file",
        file="store/upkeep/retention.py",
        old="        kept = [base for base in bases if base + size > needed_from]\n",
        new="        kept: list[int] = []\n",
        tests=COMPACTION,
        select="waits_for_the_compaction",
    ),
    Fault(
        name="a pass takes over what a later message has replaced",
        file="store/upkeep/compaction.py",
        old=" and key_and_body_size(message)[0] not in latest:\n",
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
        name="a compacted file gets its name before it is on the disk",
        file="store/files/compacted_file.py",
        old="            os.fsync(self._file.fileno())\n",
        new="",
        tests=COMPACTION,
        select="on_the_disk_before",
    ),
    Fault(
        name="retention believes a name that a power cut takes back",
        file="store/upkeep/compaction.py",
        old="            sync_directory(file.path.parent)  #",
        new="            pass  #",
        tests=COMPACTION,
        select="name_durable",
    ),
    # --- compressed batches -----------------------------------------------------------------------
    Fault(
        name="how far a batch is finished is not noted",
        file=ACKNOWLEDGE,
        old="        store64(slot + G_HELD_ATTEMPTS, number << 32)\n        store64(slot + G_HELD_OFFSET, offset + 1)\n",
        new="        pass\n",
        tests="tests/groups/delivery/test_killed_batches.py",
        select="leaves_only_the_rest or rest_of_its_record",
    ),
    Fault(
        name="a batch is finished with the first of its messages",
        file=GRANT,
        old="        if message.rest is not None and finish_inner(message):\n"
        "            return self._hold_behind(offset, message.rest)\n",
        new="",
        tests="tests/client/sending/test_compressed_batches.py",
        select="finished_when_its_last",
    ),
    Fault(
        name="a batch with fewer messages than were sent is taken",
        file="store/kernel/record/inner_batch.pxi",
        old="    if count == 0 or (told is not None and told != str(count)):\n",
        new="    if count == 0:\n",
        tests="tests/unit/log/test_inner_batch.py",
        select="fewer_messages",
    ),
    Fault(
        name="only the first id of a batch is in the index",
        file="store/kernel/record/dispatch.pxi",
        old="            unique_count = count_unique_keys(record, frame)\n",
        new="            unique_count = 1\n",
        tests="tests/unit/log/test_inner_batch.py",
        select="found_by_its_id",
    ),
]
