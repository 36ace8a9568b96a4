"""Faults in opening and recovery, and the files of settings and offsets."""

from __future__ import annotations

from tests.planted.fault import Fault

KILLED_APPEND = "tests/crash/store/test_killed_append.py"
KILLED_ACKNOWLEDGEMENT = "tests/crash/client/test_killed_acknowledgement.py"
KILLED_SEEK = "tests/crash/client/test_killed_seek.py"
RECOVERY = "tests/unit/recovery/test_recovery.py"
RUNNING = "tests/unit/runtime/test_running.py"
IMAGES = "tests/images/test_images.py"
RECOVERY_DAMAGE = "tests/unit/recovery/test_recovery_damage.py"
HANDSHAKE = "tests/replication/test_handshake.py"
LINEAGE = "tests/replication/test_lineage.py"
RETURNING = "tests/replication/test_returning.py"
KILLED_RETURN = "tests/crash/store/test_killed_replica.py"
CUTTING = "store/recovery/cutting.py"
OPENING = "store/recovery/opening.py"
REJOINING = "replication/returning/rejoining.py"


FAULTS = [
    Fault(
        name="recovery leaves what follows the last record",
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
        name="acknowledgements ahead of the committed offset are forgotten when everybody dies",
        file="store/recovery/group_progress.py",
        old="GroupProgress(advance_to, bits, epoch, interrupted, held, fence, paused, counters)",
        new="GroupProgress(advance_to, 0, epoch, interrupted, held, fence, paused, counters)",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="never and reopen",
    ),
    Fault(
        name="what everybody left uncounted is never counted",
        file="store/runtime/group_table.py",
        old="            counted[layout.COUNTED[why]] = max(0, counted[layout.COUNTED[why]] + missing) & _WORD\n",
        new="            counted[layout.COUNTED[why]] += 0 * missing\n",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="reopen and ack_marked",
    ),
    Fault(
        name="a seek that died is not completed by the next opening",
        file="store/recovery/group_progress.py",
        old="        slot.finish_seek()\n",
        new="        pass\n",
        tests=KILLED_SEEK,
        select="2400 and reopen",
    ),
    Fault(
        name="a file of offsets is written before its digest is announced",
        file="store/settings/config_file.py",
        old="    announce(_digest(text))\n    document.write(path, text, CrashPoint.OFFSETS_TEMPORARY)\n",
        new="    document.write(path, text, CrashPoint.OFFSETS_TEMPORARY)\n    announce(_digest(text))\n",
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
        name="recovery cuts the log at a record damaged below the durable mark",
        file="store/recovery/log_scan.py",
        old="        if end >= sure_to and not goes_on:",
        new="        if end >= 0:",
        tests=RECOVERY_DAMAGE,
        select="damaged_record_is_kept",
    ),
    Fault(
        name="attempts are forgotten when everybody dies",
        file="store/recovery/group_progress.py",
        old='held = slot.load("held_offset"), slot.load("held_attempts")',
        new="held = (0, 0)",
        tests="tests/unit/runtime/test_attempts.py",
        select="everybody",
    ),
    Fault(
        name="a file of settings gets its name before it is on disk",
        file="store/settings/document.py",
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
        name="progress that a power cut took back is kept on disk",
        file="store/recovery/opening.py",
        old="        config_file.write_consumer_offsets(root, withdrawn)\n",
        new="        pass\n",
        tests=RECOVERY,
        select="taken_back",
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
        name="a promotion begins no epoch",
        file="store/recovery/replica.py",
        old="        write_lineage(root, known._replace(epochs=begun(known.epochs, closed_end(root), number)))\n",
        new="        closed_end(root)\n",
        tests=HANDSHAKE,
        select="begins_an_epoch",
    ),
    Fault(
        name="a promotion begins the next number, as a power cut does",
        file="store/recovery/replica.py",
        old="newest + 1 if mark.kind is Kind.UNSETTLED else after_promotion(newest)\n",
        new="newest + 1\n",
        tests=RETURNING,
        select="has_not_heard",
    ),
    Fault(
        name="a store that rejoins forgets the epoch of its new primary",
        file=REJOINING,
        old="        epoch=found.primary_epoch,\n",
        new="",
        tests=RETURNING,
        select="before_it_has_followed",
    ),
    Fault(
        name="an epoch without a byte stays beside the next one",
        file="store/settings/lineage.py",
        old="    return (*(epoch for epoch in epochs if epoch.start < end), Epoch(number, end))[-MOST_EPOCHS:]\n",
        new="    return (*epochs, Epoch(number, end))[-MOST_EPOCHS:]\n",
        tests=RETURNING,
        select="no_message_between",
    ),
    Fault(
        name="epochs are compared by their numbers alone",
        file="store/settings/lineage.py",
        old="    known = set(theirs)\n    for epoch in reversed(own):\n        if epoch in known:\n",
        new="    known = {epoch.number for epoch in theirs}\n    for epoch in reversed(own):\n        if epoch.number in known:\n",
        tests=LINEAGE,
        select="begin_elsewhere",
    ),
    Fault(
        name="what is cut off is not zeroed",
        file=CUTTING,
        old="    commit_log.zero(log_files, end, file_end)\n",
        new="    commit_log.zero(log_files, file_end, file_end)\n",
        tests=KILLED_RETURN,
        select="cut_zeroed",
    ),
    Fault(
        name="what is cut off is not kept",
        file="store/recovery/replica.py",
        old="        kept = cutting.keep(root, files, mark.cut_to, end, read_lineage(root).newest)\n",
        new="        kept = cutting.keep(root, files, end, end, read_lineage(root).newest)\n",
        tests=RETURNING,
        select="messages_are_kept",
    ),
    Fault(
        name="the mark of a cut is lifted before the cut is made",
        file=CUTTING,
        old="    reach(CrashPoint.CUT_ANNOUNCED)\n",
        new="    replica_mark.write_mark(root, replace(mark, cut_to=-1))\n    reach(CrashPoint.CUT_ANNOUNCED)\n",
        tests=KILLED_RETURN,
        select="cut_announced",
    ),
    Fault(
        name="a store is cut that was used since it was looked at",
        file="store/recovery/replica.py",
        old="        if closed_end(root) != end:\n",
        new="        if closed_end(root) < end:\n",
        tests=RETURNING,
        select="on_doubt",
    ),
    Fault(
        name="a store that rejoins compares no byte",
        file=REJOINING,
        old="        if own != self._received(start, len(own)):\n",
        new="        if len(own) != len(self._received(start, len(own))):\n",
        tests=RETURNING,
        select="two_copies_of_one_directory",
    ),
    Fault(
        name="a fence is a file only",
        file="store/message_store.py",
        old='            self.state.words.set_bits(layout.RUNTIME_HEADER.at["restricted"], layout.RESTRICTED["replica"])\n',
        new="",
        tests=HANDSHAKE,
        select="in_any_process",
    ),
    Fault(
        name="a fence is forgotten by a restart",
        file="store/message_store.py",
        old='            write_mark(self.root, ReplicaMark(primary, "", clock.wall_ms(), Kind.FENCED, epoch))\n',
        new="            pass\n",
        tests=HANDSHAKE,
        select="in_any_process",
    ),
    Fault(
        name="an old primary that could not be reached is forgotten",
        file="replication/promotion.py",
        old="        note_replaced(root, found.primary)\n",
        new="        pass\n",
        tests=HANDSHAKE,
        select="could_not_be_reached",
    ),
    Fault(
        name="a primary that lost power goes on at once",
        file=OPENING,
        old="    if had_a_replica and (root / ABORT).exists() and shared_state.leftover(root) is None:\n",
        new="    if had_a_replica and not (root / ABORT).exists() and shared_state.leftover(root) is None:\n",
        tests=RETURNING,
        select="takes_back",
    ),
    Fault(
        name="a primary that lost power takes nothing back",
        file="replication/returning/reclaiming.py",
        old="            self._receive(connection, theirs, ended)\n",
        new="            return True\n",
        tests=RETURNING,
        select="takes_back",
    ),
    Fault(
        name="a new directory settles a primary that lost power",
        file="replication/returning/reclaiming.py",
        old="        if empty.copy not in copies:\n",
        new="        if not copies:\n",
        tests=RETURNING,
        select="never_got_a_byte",
    ),
    Fault(
        name="a frame between two of ours is not checked",
        file="replication/frames.py",
        old="            self._check(offset, content)\n",
        new="",
        tests=HANDSHAKE,
        select="comes_damaged",
    ),
    Fault(
        name="a process that opens a store beside others sees no fence",
        file=OPENING,
        old="        if replica_mark.read_mark(root) is not None:  # of a fence",
        new="        if False:  # of a fence",
        tests=KILLED_RETURN,
        select="fence",
    ),
    Fault(
        name="what was cut off stays noted as missing",
        file="store/recovery/replica.py",
        old="        write_replication(root, known.missing(None, None))\n",
        new="        pass\n",
        tests="tests/replication/troubles/test_debts.py",
        select="was_cut_off",
    ),
]
