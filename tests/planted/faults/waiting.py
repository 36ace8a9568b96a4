"""Faults in messages that wait: delays, the timer, transactions, sends by key."""

from __future__ import annotations

from tests.planted.fault import Fault

KILLED_DELIVERY = "tests/crash/client/test_killed_delivery.py"
KILLED_TRANSACTION = "tests/crash/store/test_killed_transaction.py"
KILLED_ONCE = "tests/crash/store/test_killed_once.py"
KILLED_TIMER = "tests/crash/store/test_killed_timer.py"
TIMER = "tests/client/sending/test_timer.py"
TRANSACTION = "tests/unit/waiting/test_transaction.py"

FAULTS = [
    Fault(
        name="a process has stores of two clocks open",
        file="store/clock.py",
        old="elif found != self.file:",
        new="elif found != found:",
        tests="tests/unit/runtime/test_clock.py",
        select="one_clock_at_a_time",
    ),
    Fault(
        name="sleepers on bells are not woken when the clock is moved",
        file="store/runtime/moved_clock.py",
        old="self._state.signal_arrival(lane)",
        new="pass",
        tests="tests/unit/runtime/test_clock.py",
        select="on_a_bell",
    ),
    Fault(
        name="what was delivered before a power cut is not looked for",
        file="store/waiting/schedule_restore.py",
        old="            offset = copies.behind(level, offset, high)\n",
        new="            pass\n",
        tests=KILLED_DELIVERY,
        select="power_cut",
    ),
    Fault(
        name="deliveries are written down before they are on the disk",
        file="store/waiting/schedule.py",
        old="            self._wait_until_flushed(self._state.published_to)\n",
        new="",
        tests="tests/unit/waiting/test_schedule.py",
        select="progress_is_written",
    ),
    Fault(
        name="deliveries that a power cut took back are kept on disk",
        file="store/waiting/schedule_restore.py",
        old="        config_file.write_delay_offsets(root, withdrawn)\n",
        new="        pass\n",
        tests="tests/unit/waiting/test_schedule.py",
        select="outside_of_its_queue",
    ),
    Fault(
        name="a renewal is not looked for when an older half message is decided",
        file="store/waiting/transaction_log.py",
        old="        return renewals[-1] if renewals else half\n",
        new="        return half\n",
        tests=TRANSACTION,
        select="decides_its_renewal",
    ),
    Fault(
        name="a half message that cannot be renewed stops the round",
        file="store/waiting/transaction.py",
        old="                self._give_up_as_it_is(half, error, state)\n",
        new="                raise error\n",
        tests="tests/unit/waiting/test_failing_checks.py",
        select="without_room_for_a_check",
    ),
    Fault(
        name="what the log says is not looked for in a new runtime file",
        file="store/waiting/transaction_settling.py",
        old="        if self._state.words.load(_SETTLED_AT):\n",
        new="        if self._state.words.load(_SETTLED_AT) or True:\n",
        tests=KILLED_TRANSACTION,
        select="without_its_operation or power_cut",
    ),
    Fault(
        name="the progress is written down before it is on the disk",
        file="store/waiting/transaction_log.py",
        old="                self._wait_until_flushed(self._state.published_to)\n",
        new="",
        tests=TRANSACTION,
        select="not_flushed",
    ),
    Fault(
        name="a sender by key looks before it settles an interrupted append",
        file="store/waiting/once.py",
        old="        self._settle()\n",
        new="",
        tests=KILLED_ONCE,
        select="killed_sender",
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
        file="store/waiting/timer_restore.py",
        old="        self._wait_until_flushed(flushed_to)\n",
        new="",
        tests=TIMER,
        select="written_when_it_is_on_the_disk",
    ),
    Fault(
        name="a file is removed before what waits in it is on the disk elsewhere",
        file="store/waiting/timer_rolling.py",
        old="            self._wait_until_flushed(self._state.published_to)\n",
        new="            pass\n",
        tests=TIMER,
        select="retention_removes",
    ),
    Fault(
        name="the timer delivers what is due a moment later",
        file="store/waiting/timer.py",
        old="self._heap.pop_due(self.now_ms(), SLICE)",
        new="self._heap.pop_due(self.now_ms() + 20, SLICE)",
        tests="tests/torture/quick/test_delays.py",
        select="random_kills",
    ),
]
