"""Every rule by the name of the anomaly that it finds, and the figures of a run.

Each rule goes over the evidence once, or sorts it once: ten million messages take a minute or two.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.checker.history import Kind
from tests.checker.rules import delivery_rules, queue_rules, store_rules
from tests.checker.rules.evidence import Evidence
from tests.checker.rules.store_rules import Found

RULES: dict[str, Callable[[Evidence], Found]] = {
    "lost from the store": store_rules.lost_from_store,
    "phantom": store_rules.phantom,
    "damaged": store_rules.damaged,
    "stored twice": store_rules.stored_twice,
    "inconsistent offset": store_rules.inconsistent_offset,
    "append not linearizable": store_rules.not_linearizable,
    "producer's order": store_rules.producer_order,
    "torn batch": store_rules.torn_batch,
    "misplaced entry": store_rules.misplaced_entry,
    "lost in delivery": delivery_rules.lost_in_delivery,
    "repeated without a fault": delivery_rules.repeated,
    "repeated more than was in flight": delivery_rules.repeated_too_often,
    "reordered": delivery_rules.reordered,
    "acknowledged too early": delivery_rules.acknowledged_too_early,
    "stale acknowledgement": delivery_rules.stale_acknowledgement,
    "dead letter": delivery_rules.dead_letter,
    "poll skip": queue_rules.poll_skip,
    "offset regress": queue_rules.offset_regress,
    "offset not kept": queue_rules.offset_not_kept,
    "two owners": queue_rules.two_owners,
    "stall": queue_rules.stall,
    "died": queue_rules.died,
    "leak": queue_rules.leak,
}

_MOST_EXAMPLES = 5


@dataclass(slots=True)
class Verdict:
    """What the rules have found, and the figures."""

    counts: dict[str, int]
    """By anomaly; only those that were found."""
    examples: list[str] = field(default_factory=list)
    figures: dict[str, int | float | str] = field(default_factory=dict)


def judge(evidence: Evidence) -> Verdict:
    """Apply every rule."""
    verdict = Verdict({}, figures=figures(evidence))
    for anomaly, rule in RULES.items():
        if found := rule(evidence):
            verdict.counts[anomaly] = len(found)
            verdict.examples += [f"{anomaly}: {line}" for line in found[:_MOST_EXAMPLES]]
    return verdict


def figures(evidence: Evidence) -> dict[str, int | float | str]:
    """Return what the run was like."""
    sends, faults = evidence.sends, evidence.faults
    repetitions = [delivery_rules.repetitions(evidence, group) for group in evidence.deliveries]
    takeovers = queue_rules.takeovers_s(evidence)
    seconds = max(evidence.outcome.seconds, 1e-9)

    def count(kind: Kind) -> int:
        return int(np.count_nonzero(faults["kind"] == kind))

    return {
        "messages sent": int(sends.count[sends.outcome == Kind.SENT].sum()),
        "messages whose send never returned": int(sends.count[sends.outcome == Kind.SEND_UNKNOWN].sum()),
        "messages stored": int(np.count_nonzero(evidence.subject_at >= 0)),
        "deliveries": sum(len(deliveries) for deliveries in evidence.deliveries.values()),
        "seconds": round(seconds, 1),
        "messages a second": round(len(evidence.subject_at) / seconds),
        "processes": evidence.outcome.processes,
        "kills": count(Kind.KILL),
        "stops": count(Kind.STOP),
        "departures": count(Kind.LEAVE),
        "clock jumps": count(Kind.CLOCK),
        "grants": int(np.count_nonzero(evidence.queues["kind"] == Kind.GRANT)),
        "leases that ran out": queue_rules.believed_overlaps(evidence),
        "refused acknowledgements": sum(int(each.refused.sum()) for each in evidence.deliveries.values()),
        "extra deliveries": sum(each.extra for each in repetitions),
        "extra deliveries by a former owner": sum(each.stale for each in repetitions),
        "most extra deliveries by one fault": max(max(each.by_fault.values(), default=0) for each in repetitions),
        "takeovers after a kill": len(takeovers),
        "median takeover in s": round(statistics.median(takeovers), 3) if takeovers else 0,
        "longest takeover in s": round(max(takeovers, default=0), 3),
    }
