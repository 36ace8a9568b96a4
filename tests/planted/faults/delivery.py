"""Faults in delivery: order, attempts, retries and dead letters."""

from __future__ import annotations

from tests.planted.fault import Fault

ATTEMPTS = "tests/groups/delivery/test_attempts.py"
RETRY = "tests/client/consuming/test_retry.py"
LOST_THREADS = "tests/client/consuming/test_lost_threads.py"
RETRY_RECORDS = "tests/unit/client/test_retry.py"

FAULTS = [
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
        old="self._held[0][0] <= clock.elapsed():",
        new="self._held[0][0] >= 0:",
        tests="tests/client/consuming/test_key_ordered.py",
        select="pause",
    ),
    Fault(
        name="a suspended queue goes on with the next message",
        file="rmqclient/delivery/modes/orderly.py",
        old="[message.redelivered() for message in messages] + batch[done + len(messages) :]",
        new="batch[done + len(messages) :] + [message.redelivered() for message in messages]",
        tests="tests/client/consuming/test_ordered.py",
        select="suspends_its_queue",
    ),
    Fault(
        name="a queue whose order is kept is handed over while its handler runs",
        file="rmqclient/consuming/rebalance.py",
        old="(self._delivery.keeps_order or time.monotonic() < until)",
        new="time.monotonic() < until",
        tests="tests/client/consuming/test_ordered.py",
        select="not_handed_over",
    ),
    Fault(
        name="a message is acknowledged before its retry is stored",
        file="rmqclient/delivery/modes/send_back.py",
        old="            outcome = self._store(message, failure, *earlier, was_begun=",
        new="            queue.grant.acknowledge(message)\n"
        "            outcome = self._store(message, failure, *earlier, was_begun=",
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
        old='        "ORIGIN_MESSAGE_ID": origin_message_id(message),\n        "WAIT"',
        new='        "ORIGIN_MESSAGE_ID": message.offset_message_id,\n        "WAIT"',
        tests=RETRY_RECORDS,
        select="set_once",
    ),
    Fault(
        name="a message that was left over by a kill goes on beside its copy",
        file="rmqclient/steps/journal.py",
        old="        return max(later, key=lambda copy: copy.commit_log_offset, default=None)\n",
        new="        return None\n",
        tests="tests/crash/client/test_killed_steps.py",
        select="asleep_once",
    ),
    Fault(
        name="a message that was left over by a kill does not see what its copy has finished meanwhile",
        file="rmqclient/steps/steps.py",
        old="        self._stored = self._journal.find(self._id)\n",
        new="",
        tests="tests/client/steps/test_pauses.py",
        select="finishes_meanwhile",
    ),
    Fault(
        name="a message that was left over by a kill is stored once more beside its copy",
        file="rmqclient/delivery/modes/send_back.py",
        old="        if end is not None:\n            end.store()\n            return Outcome.RETRY\n",
        new="",
        tests="tests/crash/client/test_killed_steps.py",
        select="killed_two_processes",
    ),
    Fault(
        name="a signal that comes while its message goes to wait wakes nobody",
        file="rmqclient/steps/journal.py",
        old="        if waits_for is not None:\n            self.wake(message_id)\n",
        new="",
        tests="tests/client/steps/test_pauses.py",
        select="while_the_message_goes",
    ),
    Fault(
        name="retention takes the results of a message that sleeps",
        file="rmqclient/steps/journal.py",
        old="        self.keep(message_id, records, due_ms)\n",
        new="",
        tests="tests/client/steps/test_pauses.py",
        select="outlives_retention",
    ),
    Fault(
        name="retention takes a signal that comes while its message falls asleep",
        file="rmqclient/steps/journal.py",
        old="        self.keep_late_signals(message_id, due_ms)\n",
        new="",
        tests="tests/client/steps/test_pauses.py",
        select="falls_asleep",
    ),
    Fault(
        name="retention takes a signal whose message was left over by a kill",
        file="rmqclient/steps/journal.py",
        old="lambda: self.look_after(id_of(message))",
        new="lambda: self.wake(id_of(message))",
        tests="tests/client/steps/test_pauses.py",
        select="falls_asleep",
    ),
    Fault(
        name="signals stand in for results that are gone",
        file="rmqclient/steps/journal.py",
        old="sum(record.number > 0 for record in records)",
        new="len(records)",
        tests="tests/client/steps/test_lost.py",
        select="stand_in",
    ),
    Fault(
        name="the next step begins before a result is on the disk",
        file="rmqclient/steps/journal.py",
        old="        if lasting:\n            flush(self._backend, self._sender, sent)\n",
        new="",
        tests="tests/client/steps/test_steps.py",
        select="sync_durability",
    ),
    Fault(
        name="a member of a fenced store goes on",
        file="rmqclient/local/groups.py",
        old="        self._store.check_primary()\n        return self._table.counted",
        new="        return self._table.counted",
        tests="tests/groups/membership/test_fenced.py",
        select="gives_its_queues_back",
    ),
    Fault(
        name="a thread of the library that ends by an error is told to nobody",
        file="store/threads/guarded.py",
        old="            lose(self.name, error)\n",
        new="            pass\n",
        tests=LOST_THREADS,
        select="whose_thread_is_lost",
    ),
    Fault(
        name="what a filter of logging raises leaves the line",
        file="store/threads/logs.py",
        old="            if is_for_the_program(error):\n",
        new="            if error:\n",
        tests=LOST_THREADS,
        select="filter_of_logging",
    ),
]
