"""Faults in groups: grants, acknowledgements, seeks, locks and running messages."""

from __future__ import annotations

from tests.planted.fault import Fault

KILLED_ACKNOWLEDGEMENT = "tests/crash/client/test_killed_acknowledgement.py"
KILLED_SEEK = "tests/crash/client/test_killed_seek.py"
KILLED_OPENING = "tests/crash/store/test_killed_opening.py"
ACKNOWLEDGEMENT = "tests/unit/kernel/test_acknowledgement.py"
TAG_SKIPPING = "tests/unit/kernel/test_tag_skipping.py"
RUNNING = "tests/unit/runtime/test_running.py"
FLIPS = "tests/torture/quick/test_flips.py"
IMAGES = "tests/images/test_images.py"
SECTIONS = "store/kernel/groups/sections.pxi"
SKIP = "store/kernel/groups/skip.pxi"
READER = "store/kernel/groups/reader.pxi"
GRANT = "store/kernel/groups/grant.pxi"
RECOVERY_DAMAGE = "tests/unit/recovery/test_recovery_damage.py"
COMPRESSED_READING = "tests/client/sending/test_compressed_reading.py"

FAULTS = [
    Fault(
        name="a call acknowledges a message that was taken back from it",
        file="store/runtime/lending.py",
        old="_word_of(slot, epoch), 0)\n",
        new="_word_of(slot, epoch), _word_of(slot, epoch))\n",
        tests=RUNNING,
        select="taken_back",
    ),
    Fault(
        name="what a process lost without releasing it is left to its calls",
        file="store/runtime/lending.py",
        old='                and self._members.load(fields["member"] - 1, "wake_slot") != loser\n',
        new="",
        tests=RUNNING,
        select="not_lent",
    ),
    Fault(
        name="an acknowledgement with an old epoch is taken",
        file=SECTIONS,
        old="    if load64(slot + G_EPOCH) != marking.epoch:\n        return 0\n",
        new="",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="refused",
    ),
    Fault(
        name="the committed offset moves before the bits below it are cleared",
        file=SECTIONS,
        old="    cdef uint64_t bits\n    while offset < target:\n",
        new="    cdef uint64_t bits\n    store64(slot + G_COMMITTED_OFFSET, target)\n    reach_point(AT_ACK_CLEARED)\n"
        "    while offset < target:\n",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="ack_cleared and hand_over",
    ),
    Fault(
        name="a message that the committed offset has passed is taken",
        file=SECTIONS,
        old=" or offset < load64(slot + G_ADVANCE_TO)",
        new="",
        tests=ACKNOWLEDGEMENT,
    ),
    Fault(
        name="a skip with an old epoch is taken",
        file=SECTIONS,
        old="    if epoch != load64(slot + G_EPOCH):\n        return 0\n    settle_dead_advance(slot)\n    reach_point(AT_ACK_LOCKED)\n",
        new="    settle_dead_advance(slot)\n    reach_point(AT_ACK_LOCKED)\n",
        tests=TAG_SKIPPING,
        select="loses_the_queue",
    ),
    Fault(
        name="a skip finishes the wanted message behind it, too",
        file=SKIP,
        old="outcome = skip_section(skip.slot, skip.epoch, skip.offset, wanted)\n",
        new="outcome = skip_section(skip.slot, skip.epoch, skip.offset, wanted + (wanted < end))\n",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="skips",
    ),
    Fault(
        name="a skip moves the committed offset over a message in flight",
        file=SECTIONS,
        old="    count_up(slot, COUNT_SKIPPED, marked)\n    advance(slot, committed)\n",
        new="    count_up(slot, COUNT_SKIPPED, marked)\n    store64(slot + G_ADVANCE_TO, max(end, committed))\n"
        "    settle_advance(slot)\n",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="skips",
    ),
    Fault(
        name="messages that a dead owner has marked are never counted",
        file=SECTIONS,
        old="        settle_dead_advance(slot)\n        count_marked(slot)\n",
        new="        settle_dead_advance(slot)\n",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="hand_over and ack_marked",
    ),
    Fault(
        name="messages that a dead owner has marked are counted as handled, whatever became of them",
        file=SECTIONS,
        old="    count_up(slot, <int>load64(slot + G_COUNTING), finished - counted)\n",
        new="    count_up(slot, COUNT_HANDLED, finished - counted)\n",
        tests=KILLED_ACKNOWLEDGEMENT,
        select="skips and hand_over and ack_marked",
    ),
    Fault(
        name="the bits that a skip sets are one too many at the end of a word",
        file=SECTIONS,
        old="    cdef uint64_t count = min(64 - first, end - offset[0])\n    offset[0] += count\n",
        new="    cdef uint64_t count = min(64 - first, end - offset[0])\n    offset[0] += count\n"
        "    count += 0 < count < 64 - first\n",
        tests=TAG_SKIPPING,
        select="exactly_the_wanted_ones",
    ),
    Fault(
        name="a skip does not see an entry that points below the log",
        file=SKIP,
        old="            found |= <uint64_t>get_i64(entry + number * CONSUME_QUEUE_ENTRY_SIZE) < skip.log_begin\n",
        new="            pass\n",
        tests=TAG_SKIPPING,
        select="damaged_entry",
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
        name="a seek leaves the present epoch valid",
        file="store/runtime/group_table.py",
        old='        self.store("epoch", self.load("epoch") + 1)\n',
        new="",
        tests=KILLED_SEEK,
        select="2400 and hand_over",
    ),
    Fault(
        name="a seek clears the acknowledgements before it says where to",
        file="store/runtime/group_table.py",
        old="        reach(CrashPoint.SEEK_FENCED)\n",
        new="        self._put_bits(0)\n        reach(CrashPoint.SEEK_FENCED)\n",
        tests=KILLED_SEEK,
        select="2400 and seek_fenced",
    ),
    Fault(
        name="the slots of a new group are counted one by one",
        file="store/runtime/group_table.py",
        old="            reach(CrashPoint.GROUP_SLOT_FILLED)\n",
        new="            self._state.group_queue_count = number + 1\n            reach(CrashPoint.GROUP_SLOT_FILLED)\n",
        tests=KILLED_SEEK,
        select="all_or_none",
    ),
    Fault(
        name="a runtime file with slots that nobody wrote is believed",
        file="store/runtime/shared_state.py",
        old="    if not _has_sound_tables(state):\n        return None\n",
        new="",
        tests=FLIPS,
        select="nobody_wrote",
    ),
    Fault(
        name="a consumer gets a record whose CRC is wrong",
        file=READER,
        old="        if found == FOUND_RECORD and not self.is_of_entry(",
        new="        if found == FOUND_BAD_CRC:\n            found = FOUND_RECORD\n"
        "        if found == FOUND_RECORD and not self.is_of_entry(",
        tests=RECOVERY_DAMAGE,
        select="damaged_while_the_store_is_open",
    ),
    Fault(
        name="an entry may point to a record of another topic",
        file=READER,
        old="\n                and has_topic(self.queue_slot, at, frame))",
        new=")",
        tests=FLIPS,
        select="another_topic",
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
        name="a slot that tells of an unfinished message is used again",
        file="store/runtime/running.py",
        old='        return not slot.unfinished(fields["queue_offset"], fields["last_offset"])\n',
        new="        return True\n",
        tests=RUNNING,
        select="kept_until",
    ),
    Fault(
        name="opened bodies are kept until the last one of a take is finished",
        file=GRANT,
        old="        message.opened = None  # a batch of messages holds each of them until all are finished\n",
        new="",
        tests=COMPRESSED_READING,
        select="bombs or no_longer_keeps",
    ),
    Fault(
        name="how far a batch is finished is not noted",
        file=SECTIONS,
        old="        store64(slot + G_HELD_ATTEMPTS, number << 32)\n        store64(slot + G_HELD_OFFSET, holding.offset + 1)\n",
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
        name="a process blames others for the time in which it stood still itself",
        file="store/runtime/awake.py",
        old=" - self._pauses.ns_since(moment)\n",
        new="\n",
        tests="tests/unit/runtime/test_awake.py",
        select="counts_for_nobody",
    ),
]
