"""Findings: what a look at a store finds, one line for each subject, the worst first.

============  ====================================================================================================
check         looks at
============  ====================================================================================================
store         a failed flush, a full disk, records that are late on their way to the disk
housekeeper   whether a process flushes, removes old files and delivers what waits
passes        what of the housekeeper's work failed when it last ran, and what it stepped over within a day
standing      processes that stand still and have the store open: what they hold, and how they go on
replaced      processes that still have a store open that stood at the path before, and was removed; or this one, by
              a name that its directory had before
workers       how many are ready, and whether each of them beats
schedules     ticks that passed a minute ago and that no worker has sent
hung          handlers that have run longer than a limit, by the message that they run
lag           each group: its state in words, messages that are not finished or wait for a retry, age of the oldest,
              members for which there is no queue
slots         how many more groups, queues and members the store can have
topic         each group whose members wait for a topic that nobody has made; each topic with queues that are closed
dlq           each group: dead letters that wait, and their age
timer         messages with a delay or a time that are late
tx            transactions that were given up after their last check; producers whose ``check`` hangs
supervisor    a supervisor of this host, for liveness only
============  ====================================================================================================
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rmqclient.health import words
from rmqclient.health.limits import Limits
from rmqclient.store.observe import states
from rmqclient.store.observe.config import settled_letters, topic_usage
from rmqclient.store.observe.observation import Call, Observation, Queue
from rmqclient.store.observe.reading import Reading
from rmqclient.store.observe.shared_file import HOUSEKEEPER_BYTE
from rmqclient.store.observe.summary import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    Group,
    group_of,
    groups_of,
    letters_of,
    place_of,
)
from rmqclient.store.runtime.rows import WorkerState, WorkerStatus

if TYPE_CHECKING:
    from rmqclient.store.message_queue import MessageQueue
    from rmqclient.store.runtime.rows import MemberInfo
    from rmqclient.store.threads.standing import Holder, Onlooked

OK, WARNING, CRITICAL, UNKNOWN = range(4)
LEVELS = ("ok", "warning", "critical", "unknown")

RETRIES = "waiting_retries"
"""The value of a group that counts its failed messages whose next attempt is not due."""

_GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
_MOST_SLOTS = 0.9
"""Share of a table in use, for a warning."""
_ROOM = {
    "group queues": "`rmq group rm` groups that nobody needs: each takes one for each queue of its topics",
    "queues": "make no topic more, or give topics fewer queues: those of a removed one stay",
    "members": "run fewer processes, or fewer handlers in each: each handler is a member of its group",
}
_TOLD_FOR_S = 86_400
"""For so long an item that was stepped over is told of."""


class Value(NamedTuple):
    """A number behind a finding."""

    name: str
    """A metric, as ``lag``; its labels are the finding's subject."""
    value: float
    warn: float | None = None
    crit: float | None = None


class Finding(NamedTuple):
    """What was found of one subject."""

    check: str
    subject: str
    """A group or a worker; empty for the whole store."""
    level: int
    """``OK``, ``WARNING``, ``CRITICAL`` or ``UNKNOWN``."""
    state: str
    """In words."""
    remedy: str = ""
    """What to do; empty when all is well."""
    values: tuple[Value, ...] = ()


def look(reading: Reading, limits: Limits | None = None, *, now_ms: int | None = None) -> list[Finding]:
    """Return every finding, the worst first; what is well is there, too."""
    seen = reading.observe(wall_ms=now_ms)
    return look_at(reading, seen, limits or Limits())


def look_at(reading: Reading, seen: Observation, limits: Limits, around: Onlooked | None = None) -> list[Finding]:
    """Return as :func:`look` does what an observation says; the reading that made it tells the rest.

    ``around`` is what a look at the processes has found; without it they are looked at now.
    """
    found = [store(reading, limits, seen.wall_ms), housekeeper(reading), slots(reading)]
    found += passes(reading, seen.wall_ms)
    around = around or reading.processes.look()
    found += standing(around.standing)
    found += removed(around.left_behind)
    found += renamed(reading)
    found += workers(seen.workers, seen.calls, limits)
    found += groups(seen, limits)
    found += missing_topics(seen, limits)
    found += closed_queues(reading.shared.root, seen, limits)
    found += dead_letters(reading, seen, limits)
    found += [timer(seen, limits), transactions(seen.queues), *hanging_checks(seen.members, limits)]
    return sorted(found, key=lambda finding: -finding.level)


def ready(reading: Reading, limits: Limits) -> list[Finding]:
    """Return what readiness needs: the store takes messages, and enough workers are ready."""
    now_ms = time.time_ns() // 1_000_000
    found = [store(reading, limits, now_ms)]
    found += [each for each in workers(reading.workers(), (), limits) if each.check == "workers"]
    return sorted(found, key=lambda finding: -finding.level)


def alive(reading: Reading, limits: Limits) -> list[Finding]:
    """Return what liveness needs: a supervisor that runs here, and looks after its workers.

    A supervisor is ours when it holds the byte of its worker and is visible in this PID namespace. It replaces
    a worker that is silent; one that was silent for twice as long shows that the supervisor itself does nothing.
    """
    mine = [each for each in reading.workers() if each.is_here]
    if not mine:
        return [Finding("supervisor", "", CRITICAL, "no supervisor runs here", "start `rmq run`, or restart this pod")]
    silent = [each for each in mine if (each.beat_age_ms or 0) / 1000 > 2 * limits.beat_age_s]
    pid = mine[0].supervisor_pid
    if silent:
        state = f"supervisor {pid} leaves {len(silent)} silent workers as they are"
        return [Finding("supervisor", str(pid), CRITICAL, state, "restart it")]
    return [Finding("supervisor", str(pid), OK, f"supervisor {pid} looks after {len(mine)} workers")]


def store(reading: Reading, limits: Limits, now_ms: int) -> Finding:
    """Look at the store as a whole."""
    used = reading.disk().used_ratio
    values = (Value("disk_used_ratio", round(used, 4), limits.disk_warn, limits.disk_crit),)
    if failed := reading.shared.word("poisoned"):
        name = errno.errorcode.get(failed, str(failed))
        return Finding(
            "store",
            "",
            CRITICAL,
            f"poisoned: a flush failed with {name}",
            "look at the disk, stop every process of the store, run `rmq store repair`, start them again",
            values,
        )
    if reading.is_read_only:
        remedy = "look at the disk and at `dmesg`: an error may have made it so; then mount it for writing"
        return Finding("store", "", CRITICAL, "its file system is read-only: nothing can be stored", remedy, values)
    if reading.shared.word("disk_full"):
        remedy = "make room: sends go on by themselves"
        return Finding("store", "", CRITICAL, f"disk full: appends are refused, {used:.0%} used", remedy, values)
    behind_s = _flush_age_s(reading, now_ms)
    if behind_s > limits.flush_warn_s:
        remedy = "look at the disk and at the housekeeper"
        return Finding("store", "", WARNING, f"{words.age(behind_s)} of records are not on the disk", remedy, values)
    level = _level(used, limits.disk_warn, limits.disk_crit)
    remedy = "make room, or files go before their time" if level else ""
    state = f"{'disk ' if level else ''}{used:.0%} {'of the disk ' if not level else ''}used"
    return Finding("store", "", level, state, remedy, values)


def housekeeper(reading: Reading) -> Finding:
    """Look for the process that flushes, removes old files and delivers what waits."""
    processes = reading.processes
    if processes.has_housekeeper:
        return Finding("housekeeper", "", OK, "at work")
    if reading.shared.is_locked(HOUSEKEEPER_BYTE):
        silent = words.age(processes.housekeeper_silent_s)
        state = f"process {reading.shared.word('housekeeper_pid')} stands still for {silent}"
        remedy = "let it go on (`kill -CONT`, `docker unpause`) or end it; or start `rmq run`, which takes its role"
        return Finding("housekeeper", "", CRITICAL, f"{state}: nothing is flushed or delivered later", remedy)
    remedy = "start `rmq run`, or any process that opens the store with housekeeping"
    state = "none: nothing is flushed, removed or delivered later" if processes.is_open else "none: the store is closed"
    return Finding("housekeeper", "", WARNING, state, remedy)


def passes(reading: Reading, now_ms: int) -> Iterator[Finding]:
    """Look for passes of the housekeeper that fail, and for items that they could do nothing with."""
    if failing := reading.processes.failing_passes():
        state = f"failed when it last ran: {', '.join(failing)}"
        remedy = (
            "the log of the housekeeper says why: often the disk, a limit or a permission; it is tried again by itself"
        )
        yield Finding("passes", "", CRITICAL, state, remedy)
    count, ago_s = reading.shared.word("stepped_over"), (now_ms - reading.shared.word("stepped_over_at")) / 1000
    if count and ago_s < _TOLD_FOR_S:
        state = (
            f"{count} waiting messages could not be delivered and were stepped over, the last {words.age(ago_s)} ago"
        )
        remedy = "the log of the housekeeper names each; `rmq store verify` shows what is damaged"
        yield Finding("passes", "stepped over", WARNING, state, remedy, (Value("stepped_over", count, 1),))


def standing(found: Iterable[Holder]) -> Iterator[Finding]:
    """Look at processes that stand still. Leases move their queues and roles on; what others wait for is critical."""
    for each in found:
        roles = [byte for byte in each.held if byte < words.OWNERS]
        held = list(dict.fromkeys(map(words.locked, roles)))
        level = CRITICAL if any(map(words.is_waited_for, roles)) else WARNING
        what = f", and holds {', '.join(held[:4])}{' and more' if len(held) > 4 else ''}" if held else ""
        state = f"process {each.pid} ({each.command}) stands still, {each.stands}{what}"
        yield Finding("standing", str(each.pid), level, state, each.remedy)


def removed(found: Iterable[Holder]) -> Iterator[Finding]:
    """Look at processes whose store was removed or replaced. They use nothing at the path until they start again."""
    for each in found:
        state = f"process {each.pid} ({each.command}) has a store open that was removed from here: it works on nothing"
        remedy = f"start it again, or end it (`kill {each.pid}`)"
        yield Finding("replaced", str(each.pid), CRITICAL, state, remedy)


def renamed(reading: Reading) -> Iterator[Finding]:
    """Look whether the directory was renamed while processes had it open, which write nothing since then."""
    if reading.processes.is_renamed:
        state = (
            "the directory was renamed while processes had it open, and those write nothing any more; it is open in "
            f"{_processes(reading.processes.users())}"
        )
        remedy = "end them and start them with the present name; or rename the directory back, and start them again"
        yield Finding("replaced", "", CRITICAL, state, remedy)


def renamed_elsewhere(found: Mapping[str, list[Holder]]) -> Iterator[str]:
    """Tell, for a path without a store, what was renamed while processes had it open, and what to do."""
    for root, users in found.items():
        yield (
            f"the store in {root} was renamed while processes had it open: {_processes(users)}. If it stood here, "
            "rename it back, or name the new directory; end these processes and start them again"
        )


def _processes(found: list[Holder]) -> str:
    return ", ".join(f"process {each.pid} ({each.command})" for each in found) or "processes that cannot be seen here"


def slots(reading: Reading) -> Finding:
    """Look how full the tables of the runtime file are: at their end, what is new gets nothing."""
    used = reading.slots()
    name, (count, most) = max(used.items(), key=lambda each: each[1][0] / each[1][1])
    values = tuple(
        Value(f"{each.replace(' ', '_')}_in_use", taken, _MOST_SLOTS * all_, all_)
        for each, (taken, all_) in used.items()
    )
    level = _level(count / most, _MOST_SLOTS, 1.0)
    state = f"{count:,} of {most:,} {name} are in use"
    return Finding("slots", "", level, state, _ROOM[name] if level else "", values)


def workers(found: Sequence[WorkerStatus], calls: Sequence[Call], limits: Limits) -> Iterator[Finding]:
    """Look at the workers of all supervisors, and at the messages that handlers run."""
    count = sum(each.state in (WorkerState.READY, WorkerState.OVERDUE) for each in found)
    silent = [each for each in found if (each.beat_age_ms or 0) / 1000 > limits.beat_age_s]
    values = (Value("workers_ready", count, None, limits.min_ready or None),)
    if silent:
        ages = ((each.pid, words.age((each.beat_age_ms or 0) / 1000)) for each in silent)
        state = "; ".join(f"worker {pid} silent for {age}" for pid, age in ages)
        yield Finding("workers", "", CRITICAL, state, "its supervisor replaces it; see `rmq worker ls`", values)
    elif losing := [each for each in found if each.state is WorkerState.LOSING]:
        state = "; ".join(f"worker {each.pid} lost a thread, and ends" for each in losing)
        yield Finding("workers", "", CRITICAL, state, "its supervisor replaces it; its log has the traceback", values)
    elif count < limits.min_ready:
        state = f"{count} of {limits.min_ready} workers are ready"
        yield Finding("workers", "", CRITICAL, state, "start `rmq run`, and read its log", values)
    else:
        yield Finding("workers", "", OK, f"{count} ready", "", values)
    if overdue := [each for each in found if each.state is WorkerState.OVERDUE]:
        state = "; ".join(f"a schedule of worker {each.pid} is overdue" for each in overdue)
        remedy = "its log names the schedule and why; if its function hangs: `rmq worker stack`, `rmq worker restart`"
        yield Finding("schedules", "", CRITICAL, state, remedy)
    for pid, state in hung(found, calls, limits.message_age_s):
        remedy = f"see its stack: `rmq worker stack {pid}`; end it: `rmq worker restart {pid}`"
        yield Finding("hung", "", CRITICAL, state, remedy)


def hung(found: Iterable[WorkerStatus], calls: Iterable[Call], hung_after_s: float) -> list[tuple[int, str]]:
    """Return the process and the state, in words, of each handler call that runs too long.

    A worker that runs something, and of which no call is known, counts as one call.
    """
    ages: list[tuple[int, float, str | None]] = [(each.pid, each.age_s, place_of(each)) for each in calls]
    known = {each.pid for each in calls}
    ages += [(each.pid, (each.message_age_ms or 0) / 1000, None) for each in found if each.pid not in known]
    return [
        (pid, states.worker_state("", message_age_s=age_s, hung_after_s=hung_after_s, place=where))
        for pid, age_s, where in ages
        if age_s > hung_after_s
    ]


def groups(seen: Observation, limits: Limits) -> Iterator[Finding]:
    """Look at each group: how far it is behind, and what keeps it."""
    found = [each for each in groups_of(seen, limits.message_age_s) if each.queues or each.waiting]
    if limits.group is not None and limits.group not in {each.group for each in found}:
        yield Finding("lag", limits.group, UNKNOWN, f"no group {limits.group} ever consumed", "see `rmq group ls`")
    for each in found:
        if limits.group in (None, each.group):
            yield _group(each, limits, seen.wall_ms)


def missing_topics(seen: Observation, limits: Limits) -> Iterator[Finding]:
    """Look for members that wait for a topic which does not exist: its first message makes it, or its name is wrong."""
    known = {each.queue.topic for each in seen.queues}
    awaited: dict[str, set[str]] = {}
    for member in seen.members:
        group = group_of(member.group)
        if member.topic not in known and not member.topic.startswith(RETRY_PREFIX) and limits.group in (None, group):
            awaited.setdefault(group, set()).add(member.topic)
    for group, topics in sorted(awaited.items()):
        names = ", ".join(sorted(topics))
        remedy = f"its first message makes it, or `rmq topic create {min(topics)}`; is the name right?"
        yield Finding("topic", group, WARNING, f"waits for {names}, which does not exist", remedy)


def closed_queues(root: str, seen: Observation, limits: Limits) -> Iterator[Finding]:
    """Look at topics that are not open for sends or consumers, or not with all of their queues.

    A warning for messages that a group has not handled in queues that no consumer reads.
    """
    if limits.group is not None:
        return
    usage = topic_usage(root)
    by_topic: dict[str, list[MessageQueue]] = {}
    for queue, *_ in seen.queues:
        if queue.topic in usage and not queue.topic.startswith(DEAD_LETTER_PREFIX):
            by_topic.setdefault(queue.topic, []).append(queue)
    lags: dict[MessageQueue, int] = {}
    for each in seen.group_queues:
        lags[each.queue] = max(each.lag, lags.get(each.queue, 0))
    for topic, found in sorted(by_topic.items()):
        use, count = usage[topic], len(found)
        if use.written >= count and use.read >= count:
            continue
        state = f"sends go to {min(use.written, count)} and consumers read {min(use.read, count)} of {count} queues"
        unread = sum(lags.get(queue, 0) for queue in found if queue.queue_id >= use.read)
        if unread:
            remedy = f"`rmq topic update {topic} --read-queues {count} --perm {'rw' if use.written else 'r'}` lets them"
            yield Finding("topic", topic, WARNING, f"{state}, which leaves {unread} messages that none gets", remedy)
        else:
            yield Finding("topic", topic, OK, state)


def dead_letters(reading: Reading, seen: Observation, limits: Limits) -> Iterator[Finding]:
    """Look at the dead letters that were neither replayed nor purged."""
    for group, letters in sorted(letters_of(seen.queues, settled_letters(reading.shared.root)).items()):
        if limits.group not in (None, group):
            continue
        count = letters.waiting
        stored_ms = reading.records.stored_ms(*letters.first) if letters.first else None
        oldest = None if stored_ms is None else (seen.wall_ms - stored_ms) / 1000
        level = _level(count, limits.dlq_warn, limits.dlq_crit)
        state = "1 dead letter" if count == 1 else f"{count} dead letters"
        remedy = f"rmq dlq ls {group}" if count else ""
        if oldest is not None and oldest > limits.dlq_age_warn_s:
            level = max(level, WARNING)
            state += f", the oldest from {words.age(oldest)} ago goes with its log file"
        values = (Value("dead_letters", count, limits.dlq_warn, limits.dlq_crit),)
        yield Finding("dlq", group, level, state, remedy, values)


def timer(seen: Observation, limits: Limits) -> Finding:
    """Look at the messages that wait for their time and are due."""
    due = seen.timer.next_due_ms
    late_s = 0.0 if due is None else max(0.0, (seen.wall_ms - due) / 1000)
    values = (Value("timer_late_seconds", round(late_s, 3), limits.late_warn_s),)
    if late_s > limits.late_warn_s:
        remedy = "the housekeeper delivers them: see its finding"
        return Finding("timer", "", WARNING, f"delayed messages are {words.age(late_s)} late", remedy, values)
    return Finding("timer", "", OK, "in time", "", values)


def transactions(queues: Iterable[Queue]) -> Finding:
    """Look at the transactions that nobody decided."""
    count = sum(each.max_offset - each.min_offset for each in queues if each.queue.topic == _GIVEN_UP_TOPIC)
    values = (Value("transactions_given_up", count, 1),)
    if count:
        state = f"{count} transactions were given up; some may be decided by now"
        return Finding("tx", "", WARNING, state, "see `rmq tx ls`, decide with `rmq tx commit` or `rollback`", values)
    return Finding("tx", "", OK, "none given up", "", values)


def hanging_checks(members: Iterable[MemberInfo], limits: Limits) -> Iterator[Finding]:
    """Look for producers whose ``check`` of a transaction does not return. Others answer, and at last nobody."""
    for each in members:
        silent_s = (each.heartbeat_age_ms or 0) / 1000
        if each.topic == _HALF_TOPIC and silent_s > limits.message_age_s and limits.group in (None, each.group):
            state = f"a check of a transaction hangs for {words.age(silent_s)} in process {each.pid}"
            remedy = f"see where (`py-spy dump --pid {each.pid}`), give what it waits for a time limit, start it again"
            yield Finding("tx", each.group, CRITICAL, state, remedy)


def _group(group: Group, limits: Limits, now_ms: int) -> Finding:
    waiting = group.waiting or 0
    oldest, state, remedy = group.oldest_s(now_ms), group.state, ""
    level = max(
        _level(group.lag + waiting, limits.lag_warn, limits.lag_crit),
        _level(oldest, limits.age_warn_s, limits.age_crit_s),
    )
    if level:
        remedy = f"rmq group lag {group.group}"
    for begin, (least, what) in _REMEDIES.items():
        if state.startswith(begin):
            level, remedy = max(level, least), what.format(group.group)
    text = f"{state}, lag {group.lag:,}" if group.lag else state
    if waiting and not state.startswith("waiting"):
        text += f", {waiting:,} wait for a retry"
    if group.spare:
        text += f", {len(group.spare)} of {len(group.members)} members are spare: there are no more queues"
    values = [Value("lag", group.lag, limits.lag_warn, limits.lag_crit), Value(RETRIES, waiting)]
    if oldest is not None:
        text += f", the oldest {words.age(oldest)}"
        values.append(Value("lag_seconds", round(oldest, 3), limits.age_warn_s, limits.age_crit_s))
    return Finding("lag", group.group, level, text, remedy, tuple(values))


_REMEDIES = {
    "behind retention": (CRITICAL, "they are gone: go on with `rmq group seek {} TOPIC --to earliest`"),
    "no members": (WARNING, "start its workers, or `rmq group rm {}` if nobody needs it"),
    "no owner": (WARNING, "see `rmq group assignment {}`"),
    "a file cannot be read": (CRITICAL, "run `rmq store verify`; the group is {}"),
    "a retry cannot be stored": (
        CRITICAL,
        "the workers' log says why: often a full disk, or a limit on open files",
    ),
    "flow control": (WARNING, "a message is not finished: `rmq group lag {}` and `rmq worker ls` show it"),
    "suspended": (WARNING, "see the failure in the workers' log, and `rmq group lag {}`"),
    "paused": (WARNING, "rmq group resume {}"),
    "hung": (CRITICAL, "see its stack: `rmq worker stack`; end it: `rmq worker restart`"),
}
"""By the begin of the state: the least level, and what to do."""


def _flush_age_s(reading: Reading, now_ms: int) -> float:
    flushed, published = reading.shared.word("flushed_to"), reading.shared.word("published_to")
    stored = reading.records.stored_at(flushed) if reading.processes.is_open and flushed < published else None
    return 0.0 if stored is None else (now_ms - stored) / 1000


def _level(value: float | None, warn: float | None, crit: float | None) -> int:
    if value is None:
        return OK
    if crit is not None and value >= crit:
        return CRITICAL
    return WARNING if warn is not None and value >= warn else OK
