"""Rules about what was sent and what stands in the final read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.checker.history import Kind
from tests.checker.plan import SEQUENCE_BITS
from tests.checker.rules.evidence import Evidence, Integers, Sends

Found = list[str]
"""What a rule has found, one line for each case."""


def lost_from_store(evidence: Evidence) -> Found:
    """Every message whose send returned stands in the log."""
    sent = _each(evidence.sends, evidence.sends.outcome == Kind.SENT)
    return [f"{name(each)} was sent and is not stored" for each in sent[evidence.places.of(sent) < 0]]


def phantom(evidence: Evidence) -> Found:
    """What stands in the log or was handled was sent, and no send that failed left anything."""
    sends = evidence.sends
    invoked = np.zeros(1 << 16, np.int64)
    np.maximum.at(invoked, sends.producer, (sends.subject & ((1 << SEQUENCE_BITS) - 1)) + sends.count)
    stored = evidence.subject_at[evidence.subject_at >= 0]
    never = stored[(stored & ((1 << SEQUENCE_BITS) - 1)) >= invoked[(stored >> SEQUENCE_BITS) & 0xFFFF]]
    found = [f"{name(each)} is stored and was never sent" for each in never]
    refused = np.setdiff1d(
        _each(sends, sends.outcome == Kind.SEND_FAILED), _each(sends, sends.outcome != Kind.SEND_FAILED)
    )
    found += [f"{name(each)} is stored though its send failed" for each in refused[evidence.places.of(refused) >= 0]]
    for group, deliveries in evidence.deliveries.items():
        nowhere = deliveries.subject[deliveries.place < 0]
        found += [f"{name(each)} was handled in group {group} and stands nowhere" for each in nowhere]
    return found


def damaged(evidence: Evidence) -> Found:
    """Records and bodies are what was sent, in the log and in the hands of every handler."""
    found = list(evidence.log.damaged)
    for group, deliveries in evidence.deliveries.items():
        wrong = deliveries.subject[~deliveries.right]
        found += [f"{name(each)} had another body for a handler of group {group}" for each in wrong]
    return found


def stored_twice(evidence: Evidence) -> Found:
    """A message stands at one place, unless its producer did not know and sent it again."""
    subjects, times = np.unique(evidence.subject_at[evidence.subject_at >= 0], return_counts=True)
    unknown = _each(evidence.sends, evidence.sends.outcome == Kind.SEND_UNKNOWN)
    return [f"{name(each)} is stored more than once" for each in np.setdiff1d(subjects[times > 1], unknown)]


def inconsistent_offset(evidence: Evidence) -> Found:
    """A message stands where its send said, and was handled with that offset."""
    sends = evidence.sends
    sent = sends.outcome == Kind.SENT
    subject = _each(sends, sent)
    first = evidence.begin[sends.queue[sent]] + sends.offset[sent]
    told = np.repeat(first, sends.count[sent]) + _within(sends.count[sent])
    found = evidence.places.of(subject)
    wrong = (found >= 0) & (found != told)
    text = [f"{name(each)} does not stand where its send said" for each in subject[wrong]]
    for group, deliveries in evidence.deliveries.items():
        planned = (deliveries.place >= 0) & (deliveries.queue < len(evidence.begin) - 1)
        there = deliveries.only(planned)
        wrong = evidence.begin[there.queue] + there.offset != there.place
        text += [f"{name(each)} had another offset for a handler of group {group}" for each in there.subject[wrong]]
    return text


def not_linearizable(evidence: Evidence) -> Found:
    """No send had returned before one began that got a lower offset. Exact for an append-only log."""
    sends = evidence.sends
    chosen = np.flatnonzero(sends.outcome == Kind.SENT)
    chosen = chosen[np.lexsort((sends.offset[chosen], sends.queue[chosen]))]
    found = []
    for part in _parts(chosen, sends.queue[chosen]):
        newest = np.maximum.accumulate(sends.invoked[part])
        late = np.flatnonzero(sends.ended[part][1:] < newest[:-1]) + 1
        found += [f"{name(each)} stands behind one whose send began after its own had returned"
                  for each in sends.subject[part][late]]  # fmt: skip
    return found


def producer_order(evidence: Evidence) -> Found:
    """The messages of one producer stand in a queue in the order in which it sent them."""
    places = np.flatnonzero(evidence.subject_at >= 0)
    subject = evidence.subject_at[places]
    lane = evidence.queue_of_place(places) << 16 | subject >> SEQUENCE_BITS
    order = np.argsort(lane, kind="stable")
    lane, subject = lane[order], subject[order]
    back = (lane[1:] == lane[:-1]) & (subject[1:] < subject[:-1])
    return [f"{name(each)} stands behind a later one of its producer" for each in subject[1:][back]]


def torn_batch(evidence: Evidence) -> Found:
    """A batch is stored as a whole, in one piece, or not at all."""
    sends = evidence.sends
    subject = _each(sends, np.ones(len(sends.subject), bool))
    place = evidence.places.of(subject)
    begins = np.cumsum(sends.count) - sends.count
    if not len(begins):
        return []
    stored = np.add.reduceat((place >= 0).astype(np.int64), begins)
    torn = (stored > 0) & (stored < sends.count)
    scattered = (stored == sends.count) & (place[begins + sends.count - 1] - place[begins] != sends.count - 1)
    return [f"of the batch that begins with {name(each)} a part is stored" for each in sends.subject[torn]] + [
        f"others stand inside of the batch that begins with {name(each)}" for each in sends.subject[scattered]
    ]


def misplaced_entry(evidence: Evidence) -> Found:
    """The entries of a consume queue are those of its records, one to one."""
    return list(evidence.log.misplaced)


def name(subject: int) -> str:
    """Return how a message is called in the findings."""
    return f"message {subject & ((1 << SEQUENCE_BITS) - 1)} of producer {subject >> SEQUENCE_BITS}"


def _each(sends: Sends, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Integers:
    """Return every message of some sends."""
    return np.repeat(sends.subject[chosen], sends.count[chosen]) + _within(sends.count[chosen])


def _within(counts: Integers) -> Integers:
    """Return 0, 1, 2 and so on for each of the counts."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _parts(chosen: Integers, lane: Integers) -> Iterator[Integers]:
    """Cut a sequence where another lane begins."""
    yield from np.split(chosen, np.flatnonzero(np.diff(lane)) + 1) if len(chosen) else ()
