"""The rules: what may not happen, and what RocketMQ allows after a death.

=========================  =========================================================================================
anomaly                    what must hold
=========================  =========================================================================================
lost from the cluster      a send that returned is stored where its result says
invented                   what is stored or handled was sent
lost in delivery           every stored message is handled to its end by each group
order of a producer        in each queue the messages of one producer stand in the order of its sends
reordered                  of the ordered group, the first calls of each queue go up without a gap
two at once                of the ordered group, no two calls of one queue run at the same time
repeated without a fault   a repeat follows a death that was at most :data:`WINDOWS_S` after the call that it repeats,
                           or that call came while the cluster recovered from the death
stored twice               a message stands twice only when a broker died while it was sent
=========================  =========================================================================================

RocketMQ acknowledges by committed offsets, which its consumers report every five seconds, ours every second, and which
a broker writes to its disk ten seconds after its start and then every five. The rules allow what its own consumers
need: what was handled in the seconds before a death may be handled again, and no more than that. A broker that died
before it had written anything has forgotten what the life before had not written, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from tests.checker.plan import SEQUENCE_BITS
from tests.interop.cluster.kills.evidence import NEVER, Call, Evidence, Fault

ORDERED = 0
SECOND = 1_000_000_000
WINDOWS_S = {"worker": 5 + 5, "broker": 5 + 5 + 5}
"""How long before a death a call can lie that is repeated after it: the intervals above, and five seconds of slack."""

WRITES_AFTER_S = 10 + 5
"""How old a broker is when it has surely written its offsets: the interval above, and five seconds of slack."""

RECOVERY_S = {"worker": 0, "broker": 30}
"""How long after a fault a call can lie that is repeated because of it: a broker that is back knows its consumers again
when all of them have sent a heartbeat, every 30 s, and until then it may give a queue to another one."""

AFTER_S = 60
"""How long after the end of a fault its repeats may come: a broker's lock of a queue ends after 60 s."""

Found = Iterator[str]


def lost_from_the_cluster(evidence: Evidence) -> Found:
    for send in evidence.sends:
        if send.stored and evidence.stored.get((send.queue, send.offset)) != send.subject:
            yield f"message {send.subject:#x} is not at {send.queue}/{send.offset}"


def invented(evidence: Evidence) -> Found:
    sent = {send.subject for send in evidence.sends}
    for place, subject in evidence.stored.items():
        if subject not in sent:
            yield f"message {subject:#x} at {place} was never sent"
    for calls in evidence.calls.values():
        for call in calls:
            if evidence.stored.get((call.queue, call.offset)) != call.subject:
                yield f"a handler got {call.subject:#x} from {call.queue}/{call.offset}, where it does not stand"


def lost_in_delivery(evidence: Evidence) -> Found:
    for group, calls in evidence.calls.items():
        done = {(call.queue, call.offset) for call in calls if call.ended != NEVER}
        for place in evidence.stored.keys() - done:
            yield f"group {group} never handled {evidence.stored[place]:#x} at {place}"


def order_of_a_producer(evidence: Evidence) -> Found:
    newest: dict[tuple[int, int], int] = {}
    seen: set[int] = set()
    for (queue, offset), subject in sorted(evidence.stored.items()):
        if subject in seen:
            continue  # the second copy of a message that was sent again
        seen.add(subject)
        key = queue, subject >> SEQUENCE_BITS
        if subject < newest.get(key, -1):
            yield f"message {subject:#x} at {queue}/{offset} is behind a later one of its producer"
        newest[key] = max(subject, newest.get(key, -1))


def reordered(evidence: Evidence) -> Found:
    next_offset: dict[int, int] = defaultdict(int)
    for call in evidence.calls[ORDERED]:
        if call.offset > next_offset[call.queue]:
            yield f"offset {call.offset} of queue {call.queue} came before {next_offset[call.queue]}"
        next_offset[call.queue] = max(next_offset[call.queue], call.offset + 1)


def two_at_once(evidence: Evidence) -> Found:
    """A call that was cut off ended with its process, at the first death of a worker after it."""
    running: dict[int, Call] = {}
    for call in evidence.calls[ORDERED]:
        before = running.get(call.queue)
        if before is not None and min(before.ended, _death_after(evidence, before.begun)) > call.begun:
            yield f"queue {call.queue}: offsets {before.offset} and {call.offset} were handled at once"
        running[call.queue] = call


def repeated_without_a_fault(evidence: Evidence) -> Found:
    forgotten = list(_forgotten(evidence.faults))
    for group, calls in evidence.calls.items():
        for earlier, repeat in _repeats(calls):
            if not any(_allows(fault, since, earlier, repeat) for fault, since in forgotten):
                yield f"group {group} handled {repeat.queue}/{repeat.offset} again, and nothing had died"


def stored_twice(evidence: Evidence) -> Found:
    begun = {send.subject: send for send in evidence.sends}
    for subject, count in Counter(evidence.stored.values()).items():
        send = begun.get(subject)
        if count > 1 and send and not any(_overlaps(fault, send.begun, send.ended) for fault in evidence.faults):
            yield f"message {subject:#x} is stored {count} times, and no broker had died"


RULES: dict[str, Callable[[Evidence], Found]] = {
    "lost from the cluster": lost_from_the_cluster,
    "invented": invented,
    "lost in delivery": lost_in_delivery,
    "order of a producer": order_of_a_producer,
    "reordered": reordered,
    "two at once": two_at_once,
    "repeated without a fault": repeated_without_a_fault,
    "stored twice": stored_twice,
}


def judge(evidence: Evidence) -> dict[str, list[str]]:
    """Return what each rule has found; only rules that found something."""
    return {anomaly: found for anomaly, rule in RULES.items() if (found := list(rule(evidence)))}


def figures(evidence: Evidence) -> dict[str, int | float | str]:
    """Return what the run was like."""
    return {
        "messages sent": sum(send.stored for send in evidence.sends),
        "sends that failed": sum(not send.stored for send in evidence.sends),
        "messages stored": len(evidence.stored),
        "messages stored twice": len(evidence.stored) - len(set(evidence.stored.values())),
        "calls of handlers": sum(map(len, evidence.calls.values())),
        "workers killed": sum(fault.what == "worker" for fault in evidence.faults),
        "brokers killed": sum(fault.what == "broker" for fault in evidence.faults),
        "repeated calls, ordered": sum(1 for _ in _repeats(evidence.calls[ORDERED])),
        "repeated calls, side by side": sum(1 for _ in _repeats(evidence.calls[1])),
        "most repeats of one message": max(
            (
                max(Counter((call.queue, call.offset) for call in calls).values()) - 1
                for calls in evidence.calls.values()
            ),
            default=0,
        ),
    }


def _repeats(calls: list[Call]) -> Iterator[tuple[Call, Call]]:
    """Yield each call of a message that was handled before, with the call before it."""
    latest: dict[tuple[int, int], Call] = {}
    for call in calls:
        before = latest.get((call.queue, call.offset))
        if before is not None:
            yield before, call
        latest[call.queue, call.offset] = call


def _forgotten(faults: list[Fault]) -> Iterator[tuple[Fault, int]]:
    """Yield each death, in their order, and since when the calls are that it may have undone."""
    lives: dict[str, tuple[int, int]] = {}  # of each broker: its start, and since when its calls are not written down
    for fault in faults:
        since = fault.at - WINDOWS_S[fault.what] * SECOND
        if fault.name:
            started, before = lives.get(fault.name, (0, since))
            if fault.at - started < WRITES_AFTER_S * SECOND:
                since = min(since, before)
            lives[fault.name] = fault.over, since
        yield fault, since


def _allows(fault: Fault, since: int, earlier: Call, repeat: Call) -> bool:
    return (
        since < earlier.begun
        and earlier.begun < fault.over + RECOVERY_S[fault.what] * SECOND
        and fault.at < repeat.begun < fault.over + AFTER_S * SECOND
    )


def _death_after(evidence: Evidence, moment: int) -> int:
    """Return when the first worker died after a moment; ``NEVER`` if none did."""
    return min(
        (fault.over for fault in evidence.faults if fault.what == "worker" and fault.at >= moment), default=NEVER
    )


def _overlaps(fault: Fault, begun: int, ended: int) -> bool:
    return fault.what == "broker" and begun < fault.over + 5 * SECOND and ended > fault.at
