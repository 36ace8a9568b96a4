"""Faults in the rest of the client: filters, databases, schedules, tables, requests."""

from __future__ import annotations

from tests.planted.fault import Fault

KILLED_INBOX = "tests/crash/client/test_killed_inbox.py"
KILLED_OUTBOX = "tests/crash/client/test_killed_outbox.py"
KILLED_CRON = "tests/crash/client/test_killed_cron.py"
CRON = "tests/client/consuming/test_cron.py"
REQUESTS = "tests/client/requesting/test_requests.py"
TABLE = "tests/client/tables/test_table.py"
COMPRESSION = "tests/client/sending/test_compression.py"

FAULTS = [
    Fault(
        name="bodies that do not come back equal are sent",
        file="rmqclient/codecs/coming_back.py",
        old="    found = _difference(value, back, path)\n    if found is not None:\n",
        new="    found = _difference(value, back, path)\n    if False:\n",
        tests="tests/unit/codecs/test_coming_back.py",
        select="would_come_back_changed",
    ),
    Fault(
        name="models are stored by the names of their fields",
        file="rmqclient/codecs/encoding.py",
        old="        return _json_that_comes_back(value, by_alias=True)\n",
        new="        return _json(value, by_alias=False)\n",
        tests="tests/unit/codecs/test_coming_back.py",
        select="comes_back_equal",
    ),
    Fault(
        name="the kit handles messages after its drain",
        file="rmqclient/testing/kit.py",
        old="            consumer.hold()\n\n",
        new="            pass\n\n",
        tests="tests/kit/test_kit.py",
        select="at_no_other_time",
    ),
    Fault(
        name="a consumer counts as idle before what it has suspended",
        file="rmqclient/delivery/modes/orderly.py",
        old="return [*[self._suspended_until] * len(self._suspended), *self._gathering.held_back]",
        new="return self._gathering.held_back",
        tests="tests/kit/test_as_in_production.py",
        select="every_kind and kit",
    ),
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
        old='    raise _CannotCompareError(f"{text!r} is not an integer of {bits} bits")\n',
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
    Fault(
        name="a relay believes that claimed rows were never sent",
        file="rmqclient/databases/relay.py",
        old="                if found:\n",
        new="                if False:\n",
        tests=KILLED_OUTBOX,
        select="sqlite and killed_relay",
    ),
    Fault(
        name="a relay looks for rows before it settles an interrupted append",
        file="rmqclient/databases/relay.py",
        old="        self._backend.messages.settle()\n",
        new="",
        tests=KILLED_OUTBOX,
        select="sqlite and killed_relay",
    ),
    Fault(
        name="a relay looks for a message that waits in its topic only",
        file="rmqclient/databases/relay.py",
        old="(row.topic, TIMER_TOPIC)",
        new="(row.topic,)",
        tests=KILLED_OUTBOX,
        select="sqlite and waits_for_its_time",
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
        name="who no longer waits for a reply leaves the others without a listener",
        file="rmqclient/sending/request.py",
        old="            if self._unanswered.requests:\n                self._call_thread()\n",
        new="",
        tests="tests/client/requesting/test_waiting_for_replies.py",
        select="interrupted",
    ),
    Fault(
        name="every request passes over the replies that have come",
        file="rmqclient/sending/request.py",
        old="        if not self.requests:  # replies",
        new="        if True:  # replies",
        tests=REQUESTS,
        select="passed_over",
    ),
    Fault(
        name="a message is in the inbox before its handler is done",
        file="rmqclient/databases/inbox.py",
        old="        reach(CrashPoint.INBOX_MARKED)\n",
        new="        connection.commit()\n        reach(CrashPoint.INBOX_MARKED)\n",
        tests=KILLED_INBOX,
        select="sqlite and killed_handler",
    ),
    Fault(
        name="a sender of a schedule does not look whether its tick has a message",
        file="rmqclient/schedules/cron_sender.py",
        old="            if self._backend.messages.by_key(self._cron.topic, self._cron.key(tick), 0, END_OF_TIME, 1):\n",
        new="            if False:\n",
        tests=KILLED_CRON,
    ),
    Fault(
        name="a sender of a schedule looks before it settles an interrupted append",
        file="rmqclient/schedules/cron_sender.py",
        old="            self._backend.messages.settle()\n",
        new="",
        tests=KILLED_CRON,
    ),
    Fault(
        name="senders of a schedule look and send side by side",
        file="rmqclient/schedules/cron_sender.py",
        old='        with self._backend.alone(f"{self._cron.topic} {self._cron.name}", _LOCK_TIMEOUT_S):\n',
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
    Fault(
        name="an older message of another queue replaces a newer one",
        file="rmqclient/tables/table.py",
        old="            elif found.get(key, -1) <= offset and before.get(key, -1) <= offset:\n",
        new="            elif True:\n",
        tests=TABLE,
        select="older_message",
    ),
]
