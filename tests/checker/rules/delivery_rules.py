"""Rules about what was handled: by whom, how often, in which order, and what was acknowledged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from tests.checker.history import Kind, Records
from tests.checker.plan import KEYS, MAX_RETRIES, Mode, group_name
from tests.checker.rules.evidence import NEVER, Deliveries, Evidence, Flags, Integers
from tests.checker.rules.store_rules import Found, name

_MOST_LOOKED_AT = 200_000
"""Repeated messages that are looked at one by one: with more of them the run has failed anyway."""


class Grants:
    """Who was granted which queue of a group, and when: looked up for single deliveries."""

    def __init__(self, evidence: Evidence, group: int) -> None:
        self._mine: Records = evidence.queues[evidence.queues["group"] == group]
        self._grants: Records = self._mine[self._mine["kind"] == Kind.GRANT]

    @cached_property
    def _by_queue(self) -> dict[int, Records]:
        return {int(queue): self._grants[self._grants["queue"] == queue] for queue in np.unique(self._grants["queue"])}

    def of(self, queue: int) -> Records:
        """Return the grants of one queue in the order of time."""
        none: Records = self._grants[:0]
        return self._by_queue.get(queue, none)

    def lost_within(self, queue: int, epoch: int) -> tuple[int, int]:
        """Return when, at the soonest and at the latest, an epoch of a queue was followed by another.

        Whoever takes a queue notes the time before that, as of a renewal, and the grant after it.
        """
        later = self._mine[(self._mine["queue"] == queue) & (self._mine["subject"] > epoch)]
        soonest, latest = (
            int(later["at"][later["kind"] == kind].min(initial=NEVER)) for kind in (Kind.RENEW, Kind.GRANT)
        )
        return min(soonest, latest), latest

    def epoch(self, queue: int, process: int, at: int) -> int:
        """Return the epoch that a process had for a queue at a time, 0 for none."""
        grants = self.of(queue)
        own = grants["subject"][(grants["process"] == process) & (grants["at"].astype(np.int64) <= at)]
        return int(own[-1]) if len(own) else 0

    def newer(self, queue: int, epoch: int, at: int) -> bool:
        """Tell whether a later epoch had been granted by then."""
        grants = self.of(queue)
        return bool(np.any((grants["subject"] > epoch) & (grants["at"].astype(np.int64) <= at)))

    def next_at(self, queue: int, epoch: Integers) -> Integers:
        """Return when, at the latest, each epoch of a queue was followed by another; ``NEVER`` if it was not."""
        grants = self.of(queue)
        grants = grants[np.argsort(grants["subject"], kind="stable")]
        at = np.append(grants["at"].astype(np.int64), NEVER)
        soonest = np.minimum.accumulate(at[::-1])[::-1]
        found: Integers = soonest[np.searchsorted(grants["subject"].astype(np.int64), epoch, "right")]
        return found


@dataclass(slots=True)
class Repetitions:
    """What became of the messages of one group that were delivered more than once."""

    extra: int = 0
    """Deliveries beyond the first, other than those that follow a failure."""
    stale: int = 0
    """Of these, begun by a process that had lost its queue and did not know it yet; all of them refused."""
    by_fault: Counter[tuple[int, ...]] = field(default_factory=Counter)
    unexplained: Found = field(default_factory=list)


def lost_in_delivery(evidence: Evidence) -> Found:
    """Every stored message of a group's topics has a handler call that returned, or is a dead letter."""
    found = []
    for group, deliveries in evidence.deliveries.items():
        handled = np.zeros(len(evidence.subject_at), bool)
        handled[deliveries.place[(deliveries.place >= 0) & (deliveries.ended != NEVER) & ~deliveries.failed]] = True
        handled[_present(evidence.places.of(dead_letters(evidence, group)))] = True
        missing = evidence.subject_at[evidence.places_of_group(group) & ~handled & (evidence.subject_at >= 0)]
        found += [f"{name(each)} was never handled in group {group}" for each in missing]
    return found


def repeated(evidence: Evidence) -> Found:
    """Each extra delivery has a fault between the begin of the one before it and its acknowledgement."""
    return [line for group in evidence.deliveries for line in repetitions(evidence, group).unexplained]


def repeated_too_often(evidence: Evidence) -> Found:
    """A fault repeats at most what was in flight: one message for each thread of a handler."""
    most = evidence.plan.most_in_flight
    return [
        f"group {group}: one fault of process {fault[0]} repeated {count} messages, and {most} were in flight"
        for group in evidence.deliveries
        for fault, count in repetitions(evidence, group).by_fault.items()
        if count > most
    ]


def repetitions(evidence: Evidence, group: int) -> Repetitions:
    """Look at every message that a group was given more than once."""
    deliveries = evidence.deliveries[group]
    again = np.flatnonzero((deliveries.place[1:] == deliveries.place[:-1]) & (deliveries.place[1:] >= 0)) + 1
    result = Repetitions()
    judge = _Judge(evidence, group)
    for place in np.unique(deliveries.place[again])[:_MOST_LOOKED_AT]:
        begin, end = np.searchsorted(deliveries.place, (place, place + 1))
        judge.judge(range(begin, end), result)
    return result


class _Judge:
    """Finds the fault that explains an extra delivery."""

    def __init__(self, evidence: Evidence, group: int) -> None:
        self._deliveries = evidence.deliveries[group]
        self._group = group
        self._grants = Grants(evidence, group)
        self._gone_at = killed_at(evidence, Kind.KILLED)
        self._stops = stops_of(evidence)
        self._has_faults = bool((evidence.faults["kind"] != Kind.JOIN).any())
        self._queues = evidence.plan.queues

    def judge(self, numbers: range, result: Repetitions) -> None:
        """Judge the deliveries of one message, in the order of their begins."""
        rightful = []
        for number in numbers:
            if self._is_stale(number) and len(numbers) > 1:
                result.extra += 1
                result.stale += 1
                result.by_fault[self._fault(number)] += 1
            else:
                rightful.append(number)
        for before, after in pairwise(rightful):
            if self._deliveries.failed[before]:
                continue
            result.extra += 1
            if self._is_explained(before, after):
                result.by_fault[self._fault(before)] += 1
            else:
                result.unexplained.append(self._line(before, after))

    def _is_stale(self, number: int) -> bool:
        """Tell whether the queue had gone to somebody else before this delivery began; only faults make such."""
        deliveries = self._deliveries
        if deliveries.committed[number] or not self._has_faults:
            return False
        queue, process = int(deliveries.queue[number]), int(deliveries.process[number])
        begun = int(deliveries.begun[number])
        # A process that lost its queue and has it again may still have had a message of the first grant in hand.
        epoch = int(deliveries.epoch[number]) or self._grants.epoch(queue, process, begun)
        return self._grants.newer(queue, epoch, begun)

    def _is_explained(self, before: int, after: int) -> bool:
        """Tell whether the first of two deliveries could not be acknowledged, because of a fault."""
        deliveries = self._deliveries
        if deliveries.committed[before] or not self._has_faults:
            return False
        process = int(deliveries.process[before])
        if deliveries.refused[before]:
            return self._grants.newer(
                int(deliveries.queue[before]), int(deliveries.epoch[before]), int(deliveries.begun[after])
            )
        return bool(deliveries.begun[before] <= self._gone_at[process] < NEVER)

    def _fault(self, number: int) -> tuple[int, ...]:
        """Return the process, the topic, and what befell the process: its end as 0, a stop, or the loss of a queue.

        What a process loses while it is stopped, it loses with the same messages in flight. Queues that it loses while
        it runs, because a busy machine let their leases run out, it loses one after the other: its threads may have
        gone on to the next message in between.
        """
        deliveries = self._deliveries
        process, queue = int(deliveries.process[number]), int(deliveries.queue[number])
        topic = queue // self._queues
        if deliveries.asked[number] == NEVER:
            return process, topic, 0
        epoch = int(deliveries.epoch[number])
        soonest, latest = self._grants.lost_within(queue, epoch)
        for which, (stopped_at, resumed_at) in enumerate(self._stops.get(process, ()), 1):
            if stopped_at <= soonest and latest <= resumed_at:
                return process, topic, which
        return process, topic, queue, epoch

    def _line(self, before: int, after: int) -> str:
        deliveries = self._deliveries
        state = "committed" if deliveries.committed[before] else "refused" if deliveries.refused[before] else "open"
        return (
            f"{name(int(deliveries.subject[after]))} was given to process {deliveries.process[after]} of group "
            f"{self._group} again: its delivery to process {deliveries.process[before]} was {state}"
        )


def reordered(evidence: Evidence) -> Found:
    """Where order is promised, handler calls neither overlap nor skip; going back is left to ``repeated``."""
    found: Found = []
    for group, deliveries in evidence.deliveries.items():
        for mode in (Mode.ORDERED, Mode.KEYED):
            lane, rank = _lanes(evidence, mode)
            chosen = (deliveries.place >= 0) & (lane[deliveries.place] >= 0)
            chosen &= deliveries.committed | ~_stale(evidence, group, deliveries)
            found += _out_of_order(evidence, group, deliveries.only(chosen), lane, rank)
    return found


def _lanes(evidence: Evidence, mode: Mode) -> tuple[Integers, Integers]:
    """Return for each place the lane in which order holds, -1 for none, and its rank there."""
    queue = evidence.queue_of_place(np.arange(len(evidence.subject_at)))
    of_mode = [other is mode for other in _modes(evidence)]
    lane = queue * KEYS + evidence.key_at if mode is Mode.KEYED else queue
    lane = np.where(np.array(of_mode, bool)[queue], lane, -1)
    order = np.argsort(lane, kind="stable")
    begins = np.flatnonzero(np.diff(lane[order], prepend=-2))
    rank = np.empty(len(lane), np.int64)
    rank[order] = np.arange(len(lane)) - np.repeat(begins, np.diff(np.append(begins, len(lane))))
    return lane, rank


def _out_of_order(
    evidence: Evidence, group: int, deliveries: Deliveries, lane: Integers, rank: Integers
) -> Iterator[str]:
    order = np.lexsort((deliveries.begun, lane[deliveries.place]))
    there = deliveries.only(order)
    killed = killed_at(evidence, Kind.KILLED)
    lanes, ranks = lane[there.place], rank[there.place]
    parts = np.split(np.arange(len(there)), np.flatnonzero(np.diff(lanes)) + 1) if len(there) else []
    for part in parts:
        ended = np.minimum(there.ended[part], killed[there.process[part]])
        finished = np.maximum.accumulate(np.where(there.committed[part], ended, 0))
        same = there.process[part][1:] == there.process[part][:-1]
        overlaps = (there.begun[part][1:] < finished[:-1]) | (same & (there.begun[part][1:] < ended[:-1]))
        skips = np.diff(ranks[part], prepend=-1) > 1
        for number in part[1:][overlaps]:
            yield f"group {group}: {name(int(there.subject[number]))} was begun before the one ahead of it had ended"
        for number in part[skips]:
            yield f"group {group}: {name(int(there.subject[number]))} was begun before one that stands ahead of it"


def acknowledged_too_early(evidence: Evidence) -> Found:
    """No committed offset, at no look at it, was beyond a message that no handler call had ended for."""
    found = []
    for group, deliveries in evidence.deliveries.items():
        ended_by = first_end(evidence, deliveries)
        committed = _committed_offsets(evidence, group)
        for queue in np.unique(committed["queue"]) if len(committed) else ():
            begin, end = (int(place) for place in evidence.begin[queue : queue + 2])
            ended = np.append(np.maximum.accumulate(ended_by[begin:end]), NEVER) if end > begin else np.array([NEVER])
            looks = committed[(committed["queue"] == queue) & (committed["offset"] > 0)]
            wrong = ended[np.minimum(looks["offset"] - 1, end - begin)] > looks["at"].astype(np.int64)
            found += [f"group {group}: offset {look['offset']} of queue {queue} was committed before all below it "
                      "were handled" for look in looks[wrong]]  # fmt: skip
        early = int(np.count_nonzero(deliveries.committed & (deliveries.ended == NEVER)))
        # The next owner may store the retry of a call that was cut off, or failed just before its process was killed.
        killed = killed_at(evidence, Kind.KILLED)[deliveries.process] != NEVER
        failed = deliveries.failed & (deliveries.asked == NEVER) & killed
        unpaired = int(np.count_nonzero((deliveries.ended == NEVER) | deliveries.overtaken | failed))
        stray = max(0, evidence.commits[group] - int(np.count_nonzero(deliveries.committed)) - unpaired)
        found += [f"group {group}: an acknowledgement without an ended handler call"] * (early + stray)
    return found


def first_end(evidence: Evidence, deliveries: Deliveries) -> Integers:
    """Return for each place when a handler call of it had first ended.

    Where a failed message comes again through a retry topic, it may also end by failing, and with its process.
    """
    ended = np.full(len(evidence.subject_at), NEVER)
    retried = np.array([mode in {Mode.CONCURRENT, Mode.POISON} for mode in _modes(evidence)], bool)
    gone = np.minimum(deliveries.ended, killed_at(evidence, Kind.KILLED)[deliveries.process])
    chosen = (deliveries.place >= 0) & (gone != NEVER)
    chosen[chosen] &= (deliveries.ended[chosen] != NEVER) & ~deliveries.failed[chosen] | retried[
        evidence.queue_of_place(deliveries.place[chosen])
    ]
    np.minimum.at(ended, deliveries.place[chosen], gone[chosen])
    return ended


def _committed_offsets(evidence: Evidence, group: int) -> Records:
    """Return every look at a committed offset of a planned queue: samples, grants."""
    seen = [evidence.samples, evidence.queues[evidence.queues["kind"] == Kind.GRANT]]
    looks: Records = np.concatenate(seen)
    mine: Records = looks[(looks["group"] == group) & (looks["queue"] < len(evidence.begin) - 1)]
    return mine


def stale_acknowledgement(evidence: Evidence) -> Found:
    """No acknowledgement was taken that was asked for after its queue had been granted to somebody else."""
    found = []
    for group, deliveries in evidence.deliveries.items():
        grants = Grants(evidence, group)
        for queue in np.unique(deliveries.queue):
            taken = deliveries.only(deliveries.committed & (deliveries.queue == queue))
            late = taken.subject[taken.asked > grants.next_at(int(queue), taken.epoch)]
            found += [f"{name(each)} was acknowledged in group {group} with an old epoch" for each in late]
    return found


def dead_letter(evidence: Evidence) -> Found:
    """A message is a dead letter if and only if it failed as often as it may.

    A retry is stored before what failed is acknowledged, so that a fault in between stores it twice: each delivery
    that was not acknowledged allows for one more row of attempts, with a dead letter of its own.
    """
    found = []
    for group, deliveries in evidence.deliveries.items():
        dead, poison = dead_letters(evidence, group), _poison(evidence, group)
        open_ends = Counter(deliveries.subject[~deliveries.committed].tolist())
        tried = Counter(deliveries.subject[np.isin(deliveries.subject, np.append(dead, poison))].tolist())
        succeeded = deliveries.subject[(deliveries.ended != NEVER) & ~deliveries.failed]
        found += [f"{name(each)} is no dead letter of group {group}" for each in np.setdiff1d(poison, dead)]
        found += [f"{name(each)} is a dead letter and was handled" for each in np.intersect1d(succeeded, dead)]
        for subject in np.setdiff1d(dead, poison).tolist():
            if not open_ends[subject]:
                found.append(f"{name(subject)} is a dead letter of group {group} and never failed")
        for subject, times in Counter(dead.tolist()).items():
            if times > 1 + open_ends[subject]:
                found.append(f"{name(subject)} is {times} dead letters of group {group}")
        for subject, times in tried.items():
            allowed = (MAX_RETRIES + 1 - open_ends[subject], (MAX_RETRIES + 1) * (1 + open_ends[subject]))
            if not allowed[0] <= times <= allowed[1]:
                found.append(f"{name(subject)} was tried {times} times in group {group}, not {MAX_RETRIES + 1}")
    return found


def dead_letters(evidence: Evidence, group: int) -> Integers:
    """Return the messages in the dead-letter topic of a group."""
    topic = f"%DLQ%{group_name(group)}"
    numbers = [number for (other, _), number in evidence.plan.queue_numbers.items() if other == topic]
    return evidence.log.subject[np.isin(evidence.log.queue, numbers)]


def killed_at(evidence: Evidence, kind: Kind = Kind.KILL) -> Integers:
    """Return by process when it was about to be killed, or with KILLED when it was gone; ``NEVER`` if it was not."""
    killed = np.full(1 << 16, NEVER)
    kills = evidence.faults[evidence.faults["kind"] == kind]
    killed[kills["subject"].astype(np.int64)] = kills["at"].astype(np.int64)
    return killed


def stops_of(evidence: Evidence) -> dict[int, list[tuple[int, int]]]:
    """Return by process from when to when it was stopped each time; ``NEVER`` for the end of one that did not go on."""
    stops: dict[int, list[tuple[int, int]]] = {}
    for fault in evidence.faults:
        process, at = int(fault["subject"]), int(fault["at"])
        if fault["kind"] == Kind.STOP:
            stops.setdefault(process, []).append((at, NEVER))
        elif fault["kind"] == Kind.RESUME:
            stops[process][-1] = (stops[process][-1][0], at)
    return stops


def _stale(evidence: Evidence, group: int, deliveries: Deliveries) -> Flags:
    judge = _Judge(evidence, group)
    stale = np.zeros(len(deliveries), bool)
    for number in np.flatnonzero(~deliveries.committed)[:_MOST_LOOKED_AT]:
        stale[number] = judge._is_stale(int(number))
    return stale


def _poison(evidence: Evidence, group: int) -> Integers:
    """Return the stored messages that a group's handlers must fail at."""
    of_poison = np.repeat(np.array([mode is Mode.POISON for mode in _modes(evidence)], bool), np.diff(evidence.begin))
    there = evidence.subject_at[of_poison & evidence.places_of_group(group)]
    return np.array([each for each in there.tolist() if evidence.plan.is_poison(each)], np.int64)


def _modes(evidence: Evidence) -> list[Mode]:
    """Return the mode of each planned queue."""
    return [topic.mode for _, topic in sorted(evidence.plan.topic_of_queue.items())]


def _present(places: Integers) -> Integers:
    return places[places >= 0]
