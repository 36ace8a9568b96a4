"""Faults in what a server does with a store: messages of remote clients, records for pulls, commits."""

from __future__ import annotations

from tests.planted.fault import Fault

SECTIONS = "store/kernel/groups/sections.pxi"
INCOMING = "store/kernel/wire/incoming.pxi"
FRAMES = "store/kernel/wire/frames.pxi"
APPEND_RECEIVED = "tests/broker/kernel/test_append_received.py"
RECORD_READER = "tests/broker/kernel/test_record_reader.py"
COMMIT_OFFSET = "tests/broker/kernel/test_commit_offset.py"
RETRIES = "tests/broker/sending/test_retries.py"
FENCES = "tests/broker/groups/test_fences.py"
TRANSACTIONS = "tests/broker/producers/test_transactions.py"
KILLED_COMMIT = "tests/crash/client/test_killed_commit.py"

REPORTS = "tests/replication/test_reports.py"
FOLLOWED = "tests/replication/test_following.py"
KILLED_REPLICA = "tests/crash/store/test_killed_replica.py"
WAITING = "tests/replication/test_waiting_sends.py"
RECEIVING = "replication/receiving.py"
REPLICA_LOG = "store/append/replica_log.py"

NAMED_BY_PLACE = "tests/broker/access/test_named_by_place.py"

FAULTS = [
    Fault(
        name="a message of any topic is given back to whoever knows its place",
        file="broker/sending/retries.py",
        old="        request.check_topic(message.topic, writes=False)\n",
        new="",
        tests=NAMED_BY_PLACE,
        select="not_given_back",
    ),
    Fault(
        name="a transaction of any topic is decided by whoever knows its place",
        file="broker/producers/transactions.py",
        old="        request.check_topic(half.topic if queue is None else queue.topic, writes=True)\n",
        new="",
        tests=NAMED_BY_PLACE,
        select="decided",
    ),
    Fault(
        name="a message that waits for another topic is recalled",
        file="store/waiting/timer.py",
        old="            if waits_for.startswith(_RETRY_PREFIX) or topic not in (None, waits_for):\n",
        new="            if waits_for.startswith(_RETRY_PREFIX):\n",
        tests="tests/broker/sending/test_waits.py",
        select="another_topic_is_not_recalled",
    ),
    Fault(
        name="a client that takes its queue again at the next server loses the fence",
        file="store/runtime/members.py",
        old='            if not stays_fenced:\n                slot.store("fenced_until", 0)\n',
        new='            slot.store("fenced_until", 0)\n',
        tests=FENCES,
        select="second_death",
    ),
    Fault(
        name="a commit in a queue that is kept for a client is a seek",
        file="broker/groups/leases.py",
        old="        if slot.fence_left_ns:\n",
        new="        if False:\n",
        tests=FENCES,
        select="commit_that_comes_before",
    ),
    Fault(
        name="a client that lost its lease still commits",
        file=SECTIONS,
        old="    if position.epoch != load64(slot + G_EPOCH):\n        return 0\n",
        new="",
        tests=COMMIT_OFFSET,
        select="old_epoch",
    ),
    Fault(
        name="a commit goes further in one step than the bitmap is long",
        file=SECTIONS,
        old="        committed += min(position.offset - committed, <uint64_t>ACK_WINDOW)\n",
        new="        committed = position.offset\n",
        tests=KILLED_COMMIT,
        select="22",
    ),
    Fault(
        name="a commit back keeps what was finished ahead",
        file=SECTIONS,
        old="    memset(slot + G_ACKNOWLEDGED, 0, ACK_WINDOW // 8)\n",
        new="",
        tests=COMMIT_OFFSET,
        select="commit_back",
    ),
    Fault(
        name="a client makes a record that its queue has no entry for",
        file=INCOMING,
        old="    if sys_flag & SYS_FLAG_TRANSACTION != SYS_FLAG_COMMITTED:\n",
        new="    if False:\n",
        tests=APPEND_RECEIVED,
        select="no_place_in_its_queue",
    ),
    Fault(
        name="properties in a batch that no client can read are stored",
        file=INCOMING,
        old="        check_text(given.text, given.size)\n",
        new="",
        tests=APPEND_RECEIVED,
        select="not_utf_8",
    ),
    Fault(
        name="a pull gets a record whose CRC is wrong",
        file=FRAMES,
        old="        if outcome == IS_RECORD and not self.reader.is_of_entry(",
        new="        if outcome == BAD_CRC:\n            outcome = IS_RECORD\n"
        "        if outcome == IS_RECORD and not self.reader.is_of_entry(",
        tests=RECORD_READER,
        select="damaged_record",
    ),
    Fault(
        name="the CRC over a record with another store host stays",
        file=FRAMES,
        old="    cdef bint checked = has_our_crc(at, frame)\n",
        new="    cdef bint checked = False\n",
        tests=RECORD_READER,
        select="address_that_it_knows",
    ),
    Fault(
        name="a plain send may ask for a delay",
        file="store/kernel/serve/plain.pxi",
        old='_SPECIAL = [b"DELAY", b"TIMER_",',
        new='_SPECIAL = [b"DELAYED", b"TIMER_",',
        tests="tests/broker/kernel/test_plain_sends.py",
        select="changes_what_happens",
    ),
    Fault(
        name="topics of plain sends are remembered for good",
        file="store/kernel/serve/plain.pxi",
        old="        if changes != self.changes:\n",
        new="        if False:\n",
        tests="tests/broker/kernel/test_plain_sends.py",
        select="asked_about_again",
    ),
    Fault(
        name="bytes in a body count as a record that a client names",
        file="broker/sending/records.py",
        old="    return found if entry is not None and entry.commit_log_offset == commit_log_offset else None\n",
        new="    return found\n",
        tests=RETRIES,
        select="look_like_a_record",
    ),
    Fault(
        name="a message is tried once more than its group wants",
        file="broker/sending/retries.py",
        old="        if level < 0 or message.reconsume_times >= self._most(request, settings):\n",
        new="        if level < 0 or message.reconsume_times > self._most(request, settings):\n",
        tests=RETRIES,
        select="tried_often_enough",
    ),
    Fault(
        name="a half message is stored like any other",
        file="broker/sending/plain_sends.py",
        old="DELAY|TIMER_|TRAN_MSG|",
        new="DELAY|TIMER_|",
        tests=TRANSACTIONS,
        select="half_message_waits",
    ),
    Fault(
        name="any message can be committed",
        file="broker/producers/transactions.py",
        old='        if half is None or half.topic != HALF_TOPIC:\n            raise AnswerError(ResponseCode.SYSTEM_ERROR, "Find',
        new='        if half is None:\n            raise AnswerError(ResponseCode.SYSTEM_ERROR, "Find',
        tests=TRANSACTIONS,
        select="only_the_half_message",
    ),
    Fault(
        name="a replica reports before its disk has the bytes",
        file=RECEIVING,
        old="        if self._ack is Ack.DISK and not self._is_durable():\n            return\n",
        new="",
        tests=REPORTS,
        select="after_the_flush",
    ),
    Fault(
        name="a replica reports bytes that it has not stored",
        file=RECEIVING,
        old="        end = self._log.end if ",
        new="        end = self._log.end + len(self._held) if ",
        tests=REPORTS,
        select="after_the_flush",
    ),
    Fault(
        name="a replica reports all that it has before it has compared",
        file=RECEIVING,
        old=" if self._joining.is_done and not self._log.is_empty else self._joining.asked\n",
        new="\n",
        tests=REPORTS,
        select="before_the_last_record",
    ),
    Fault(
        name="a replica compares nothing",
        file="replication/joining.py",
        old="        self._compare(frame.content[:known])\n",
        new="",
        tests=FOLLOWED,
        select="two_ways",
    ),
    Fault(
        name="a replica takes messages of its own",
        file="store/recovery/opening.py",
        old='    state.restricted = layout.RESTRICTED["replica"] if replica_mark.read_mark(root) is not None else 0\n',
        new="    state.restricted = 0\n",
        tests=FOLLOWED,
        select="takes_no_message",
    ),
    Fault(
        name="a store with messages of its own becomes a replica",
        file="store/recovery/replica.py",
        old="        if known is None and _has_messages(root, settled):\n",
        new="        if False:\n",
        tests=FOLLOWED,
        select="becomes_no_replica",
    ),
    Fault(
        name="a replica publishes before it says so",
        file=REPLICA_LOG,
        old="            self._state.append_stage = RECORDED\n",
        new="",
        tests=KILLED_REPLICA,
        select="replica_published",
    ),
    Fault(
        name="a follower that begins leaves the step of the dead one as it is",
        file=REPLICA_LOG,
        old="            repair(self._state, self._files, self._queues, self._topics)\n",
        new="            self._state.append_stage = IDLE\n",
        tests=KILLED_REPLICA,
        select="beside_a_reader and replica_published",
    ),
    Fault(
        name="the furthest of several replicas is enough",
        file="replication/acks/followers.py",
        old="    return known[settings.followers - 1] if",
        new="    return known[0] if",
        tests=WAITING,
        select="slowest_that_is_needed",
    ),
    Fault(
        name="a first report counts as one of what a replica has",
        file="replication/sender.py",
        old="        elif self.peer is None or self.peer.wants == Wants.FOLLOW:\n            self.acked = min(end, self._sent_to)\n",
        new="        self.acked = min(end, self._sent_to)\n",
        tests=WAITING,
        select="before_anything_is_written",
    ),
    Fault(
        name="a send is answered before replicas have its message",
        file="store/append/replicas.py",
        old="        if state.replicated_to >= end:\n            return Copies.MADE\n        if not",
        new="        if self.are_in_sync:\n            return Copies.MADE\n        if not",
        tests=WAITING,
        select="reported_its_message",
    ),
    Fault(
        name="that replicas lack messages is written down after the answer",
        file="store/append/replicas.py",
        old="            self._note_missing(end)\n",
        new="            self._state.is_missing = 1\n",
        tests=WAITING,
        select="written_down_before",
    ),
    Fault(
        name="a replica that hangs stays in sync",
        file="replication/acks/keeper.py",
        old="        if acked >= self._goal:\n",
        new="        if acked is not None:\n",
        tests=WAITING,
        select="before_anything_is_written",
    ),
    Fault(
        name="a follower that starts again forgets what its primary had",
        file="replication/follower.py",
        old='        self._seen = replace(seen_of(store.root, primary), problem="")\n',
        new='        self._seen = replace(seen_of(store.root, ""), primary=primary)\n',
        tests="tests/replication/troubles/test_restarted_follower.py",
        select="does_not_forget",
    ),
    Fault(
        name="bytes that a primary has lost stay missing",
        file="replication/follower.py",
        old="            self._seen = replace(self._seen, primary_end=shape.end)\n",
        new="            pass\n",
        tests="tests/replication/troubles/test_restarted_follower.py",
        select="leaves_no_missing_bytes",
    ),
    Fault(
        name="a follower takes a slow link for a primary that has nothing",
        file=RECEIVING,
        old="            self._sent_at = time.monotonic()\n",
        new="            pass\n",
        tests="tests/replication/troubles/test_slow_links.py",
        select="slow_link",
    ),
    Fault(
        name="that a debt could not be struck out is forgotten",
        file="store/append/replicas.py",
        old="                self._state.is_missing = int(read_replication(self._root).missing_from is not None)\n",
        new="                pass\n",
        tests="tests/replication/troubles/test_debts.py",
        select="room_again",
    ),
    Fault(
        name="a message that somebody waits for while a server begins is not missing",
        file="store/append/replicas.py",
        old="waits_from=had or self._state.published_to",
        new="waits_from=self._state.published_to",
        tests="tests/replication/troubles/test_debts.py",
        select="waited_for_while",
    ),
    Fault(
        name="who only looks takes the acks of its copy away",
        file="replication/sender.py",
        old="        self.identity, self.is_flushed = self._copy or self.name,",
        new="        self.identity, self.is_flushed = theirs.copy,",
        tests="tests/replication/troubles/test_strangers.py",
        select="only_looks",
    ),
    Fault(
        name="a slave whose bytes are not from here is served when the log has passed its end",
        file="replication/sender.py",
        old="            self._strangers.add(self.identity)\n",
        new="            pass\n",
        tests="tests/replication/troubles/test_strangers.py",
        select="reported_too_much",
    ),
    Fault(
        name="two processes send the log of one store",
        file="store/append/replicas.py",
        old="        if not self._lock.try_exclusive(SENDER_BYTE):\n",
        new="        if False:\n",
        tests="tests/replication/troubles/test_accepting.py",
        select="one_process",
    ),
]
