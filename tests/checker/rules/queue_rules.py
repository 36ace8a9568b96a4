"""Rules about queues changing hands, committed offsets, and what is left of a process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tests.checker.history import Kind, Records
from tests.checker.rules.delivery_rules import first_end, killed_at
from tests.checker.rules.evidence import NEVER, Evidence
from tests.checker.rules.store_rules import Found

_MS = 1_000_000


def poll_skip(evidence: Evidence) -> Found:
    """A new owner begins at the committed offset; what it steps over was handled before."""
    found = []
    for group, deliveries in evidence.deliveries.items():
        ended = first_end(evidence, deliveries)
        for queue, records in by_queue(evidence, group, Kind.GRANT, Kind.FIRST_TAKE):
            if queue >= len(evidence.begin) - 1:
                continue
            committed = {each["subject"]: int(each["offset"]) for each in records if each["kind"] == Kind.GRANT}
            for take in records[records["kind"] == Kind.FIRST_TAKE]:
                low, first = committed.get(take["subject"], 0), int(take["offset"])
                passed = ended[evidence.begin[queue] + low : evidence.begin[queue] + first]
                if first < low or (passed > int(take["at"])).any():
                    found.append(f"group {group}: the owner of queue {queue} in epoch {take['subject']} was granted "
                                 f"it at {low} and began at {first}")  # fmt: skip
    return found


def offset_regress(evidence: Evidence) -> Found:
    """A committed offset never falls."""
    found = []
    for (group, queue), looks in _looks(evidence):
        fallen = np.flatnonzero(np.diff(looks["offset"]) < 0) + 1
        found += [f"group {group}: the committed offset of queue {queue} fell to {offset}"
                  for offset in looks["offset"][fallen]]  # fmt: skip
    return found


def offset_not_kept(evidence: Evidence) -> Found:
    """When all is handled, the file of offsets has the end of every queue."""
    if evidence.outcome.stalled:
        return []
    found = []
    for group in evidence.deliveries:
        for queue, topic in evidence.plan.topic_of_queue.items():
            end = int(evidence.begin[queue + 1] - evidence.begin[queue])
            kept = evidence.log.committed.get((group, queue), 0)
            if group in topic.groups and kept != end:
                found.append(f"group {group}: offset {kept} of queue {queue} was kept, and its end is {end}")
    return found


def two_owners(evidence: Evidence) -> Found:
    """A queue is granted when its owner has given it back, is dead, or has not renewed its lease for that long."""
    found = []
    killed = killed_at(evidence)
    exits = {int(each["process"]): int(each["at"]) for each in evidence.exits} | evidence.last_words
    for group in evidence.deliveries:
        for queue, records in by_queue(evidence, group, Kind.GRANT, Kind.RENEW, Kind.RELEASE, Kind.LOST):
            grants = records[records["kind"] == Kind.GRANT]
            grants = grants[np.argsort(grants["subject"], kind="stable")]
            for old, new in pairwise(grants):
                process = int(old["process"])
                gone_at = min(int(killed[process]), exits.get(process, NEVER), _given_up_at(records, old))
                lease_until = _renewed_at(records, old, int(new["at"])) + evidence.plan.lease_ms * _MS
                if old["subject"] == new["subject"] or min(gone_at, lease_until) > int(new["at"]):
                    found.append(f"group {group}: queue {queue} was granted to process {new['process']} in epoch "
                                 f"{new['subject']} while process {process} had it in {old['subject']}")  # fmt: skip
    return found


def believed_overlaps(evidence: Evidence) -> int:
    """Count the grants at which an owner whose lease had run out still believed to have the queue."""
    count = 0
    killed = killed_at(evidence)
    for group in evidence.deliveries:
        for _, records in by_queue(evidence, group, Kind.GRANT, Kind.RELEASE, Kind.LOST):
            grants = records[records["kind"] == Kind.GRANT]
            for old, new in pairwise(grants):
                gone_at = min(int(killed[int(old["process"])]), _given_up_at(records, old))
                count += gone_at > int(new["at"])
    return count


def takeovers_s(evidence: Evidence) -> list[float]:
    """Return for each queue of each killed owner how long it was without one."""
    found = []
    killed = killed_at(evidence)
    for group in evidence.deliveries:
        for _, records in by_queue(evidence, group, Kind.GRANT, Kind.RELEASE, Kind.LOST):
            grants = records[records["kind"] == Kind.GRANT]
            for old, new in pairwise(grants):
                death = int(killed[int(old["process"])])
                if death < int(new["at"]) and _given_up_at(records, old) == NEVER:
                    found.append((int(new["at"]) - death) / 1e9)
    return found


def stall(evidence: Evidence) -> Found:
    """Without faults everything is handled, and everybody leaves when asked to."""
    return list(evidence.outcome.stalled)


def died(evidence: Evidence) -> Found:
    """Nobody ends unless killed or asked to."""
    return list(evidence.outcome.died.values())


def leak(evidence: Evidence) -> Found:
    """A process that has closed its store has no descriptor and no mapping of it."""
    return [
        f"process {each['process']} left with {each['offset']} descriptors and {each['detail']} mappings of the store"
        for each in evidence.exits
        if each["offset"] or each["detail"]
    ]


def by_queue(evidence: Evidence, group: int, *kinds: Kind) -> Iterator[tuple[int, Records]]:
    """Return for each queue of a group its records of some kinds, in the order of time."""
    mine = evidence.queues[(evidence.queues["group"] == group) & np.isin(evidence.queues["kind"], kinds)]
    for queue in np.unique(mine["queue"]):
        yield int(queue), mine[mine["queue"] == queue]


def _looks(evidence: Evidence) -> Iterator[tuple[tuple[int, int], Records]]:
    samples = evidence.samples
    lanes = samples["group"].astype(np.int64) << 16 | samples["queue"]
    for lane in np.unique(lanes):
        yield (int(lane) >> 16, int(lane) & 0xFFFF), samples[lanes == lane]


def _given_up_at(records: Records, grant: np.void) -> int:
    """Return when the owner gave a queue back or learned that it had lost it."""
    own = records[(records["process"] == grant["process"]) & (records["subject"] == grant["subject"])]
    given = own["at"][np.isin(own["kind"], (Kind.RELEASE, Kind.LOST))]
    return int(given[0]) if len(given) else NEVER


def _renewed_at(records: Records, grant: np.void, before: int) -> int:
    """Return when a grant was last renewed before a time."""
    own = records[(records["process"] == grant["process"]) & (records["subject"] == grant["subject"])]
    renewed = own["at"][(own["kind"] == Kind.RENEW) & (own["at"].astype(np.int64) <= before)]
    return int(renewed[-1]) if len(renewed) else 0
