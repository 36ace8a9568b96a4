"""The evidence of a run: its histories and its final read, as columns that whole rules can be computed on.

Ids are dense, so nothing here is a set or a dictionary of messages. A *place* is the number of a message in the final
read, counted over all queues of the planned topics: the first one of queue ``q`` has the place ``begin[q]``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.checker.history import DTYPE, Kind, Records, read
from tests.checker.plan import SEQUENCE_BITS, Plan
from tests.checker.rules.final_read import Log, read_store
from tests.checker.running.phases import Outcome

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max
"""When something happened that did not."""

_SEQUENCE = (1 << SEQUENCE_BITS) - 1


@dataclass(slots=True)
class Sends:
    """One value of each column for each send: of a batch, or of one message. ``outcome`` is a kind."""

    subject: Integers
    count: Integers
    invoked: Integers
    ended: Integers
    outcome: Integers
    queue: Integers
    offset: Integers

    @property
    def producer(self) -> Integers:
        """Process that sent."""
        return self.subject >> SEQUENCE_BITS


@dataclass(slots=True)
class Deliveries:
    """The handler calls of one group. Sorted by place, those of one message by their begin."""

    place: Integers
    subject: Integers
    queue: Integers
    """Number of the queue that it was delivered from; of a retry that of the retry topic."""
    offset: Integers
    process: Integers
    begun: Integers
    ended: Integers
    """``NEVER`` for one that was cut off."""
    failed: Flags
    right: Flags
    """The body was what was sent."""
    asked: Integers
    """When its acknowledgement was asked for; ``NEVER`` without an answer."""
    committed: Flags
    refused: Flags
    epoch: Integers
    """Of its acknowledgement, 0 without one."""
    overtaken: Flags
    """Its process lost the queue, had it again, and began the message anew before this call was told that it was late:
    the answers to the two calls stand behind both."""

    def __len__(self) -> int:
        return len(self.place)

    def only(self, chosen: Flags | Integers) -> Deliveries:
        """Return some of them."""
        return Deliveries(*(getattr(self, name)[chosen] for name in self.__slots__))


@dataclass(slots=True)
class Evidence:
    """Everything that the rules are computed on."""

    plan: Plan
    log: Log
    sends: Sends
    deliveries: dict[int, Deliveries]
    """By group."""
    queues: Records
    """Grants, first takes, renewals, releases, losses, with the ``process`` that had them."""
    commits: dict[int, int]
    """How many acknowledgements were taken in each group."""
    samples: Records
    faults: Records
    """What the nemesis did."""
    exits: Records
    last_words: dict[int, int]
    """When a process that died by itself wrote for the last time."""
    outcome: Outcome
    begin: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    """Place of the first message of each queue, and behind the last one."""
    subject_at: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    """Message at each place, -1 where none was found."""
    key_at: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    places: Places = field(init=False)

    def __post_init__(self) -> None:
        planned = len(self.plan.topic_of_queue)
        mine = self.log.queue < planned
        queue, offset = self.log.queue[mine], self.log.offset[mine]
        lengths = np.zeros(planned, np.int64)
        np.maximum.at(lengths, queue, offset + 1)
        self.begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        self.subject_at = np.full(self.begin[-1], -1, np.int64)
        self.key_at = np.zeros(self.begin[-1], np.int64)
        self.subject_at[self.begin[queue] + offset] = self.log.subject[mine]
        self.key_at[self.begin[queue] + offset] = self.log.key[mine]
        self.places = Places(self.subject_at)
        for deliveries in self.deliveries.values():
            deliveries.place = self.places.of(deliveries.subject)
        self.deliveries = {group: _sorted(deliveries) for group, deliveries in self.deliveries.items()}

    def queue_of_place(self, place: Integers) -> Integers:
        """Return the queue of each place."""
        return np.searchsorted(self.begin, place, "right") - 1

    def places_of_group(self, group: int) -> Flags:
        """Tell for each place whether the group consumes its topic."""
        consumed = [group in topic.groups for _, topic in sorted(self.plan.topic_of_queue.items())]
        return np.repeat(np.array(consumed, bool), np.diff(self.begin))


class Places:
    """Where each message stands in the final read."""

    def __init__(self, subject_at: Integers) -> None:
        self._order = np.argsort(subject_at, kind="stable")
        self._sorted = subject_at[self._order]

    def of(self, subject: Integers) -> Integers:
        """Return the place of each message, -1 for one that stands nowhere."""
        if not len(self._sorted):
            return np.full(len(subject), -1, np.int64)
        found = np.searchsorted(self._sorted, subject)
        found[found == len(self._sorted)] = 0
        return np.where(self._sorted[found] == subject, self._order[found], -1)


def collect(plan: Plan, directory: Path, outcome: Outcome) -> Evidence:
    """Read everything that a run has left in its directory."""
    records = [read(directory / "history", process) for process in range(outcome.processes + 1)]
    return from_records(plan, records, read_store(plan, directory / "store"), outcome)


def from_records(plan: Plan, records: list[Records], log: Log, outcome: Outcome) -> Evidence:
    """Put the histories of the processes, by their numbers, together with the final read."""
    return Evidence(
        plan=plan,
        log=log,
        sends=_sends(records),
        deliveries={group: _deliveries(records, group) for group in range(plan.groups)},
        commits={group: _count(records, group, Kind.COMMIT) for group in range(plan.groups)},
        queues=_of_kinds(records, Kind.GRANT, Kind.FIRST_TAKE, Kind.RENEW, Kind.RELEASE, Kind.LOST),
        samples=_of_kinds(records, Kind.SAMPLE),
        faults=_of_kinds(records, Kind.KILL, Kind.KILLED, Kind.STOP, Kind.RESUME, Kind.LEAVE, Kind.JOIN, Kind.CLOCK),
        exits=_of_kinds(records, Kind.EXIT),
        last_words={process: int(records[process]["at"].max(initial=0)) for process in outcome.died},
        outcome=outcome,
    )


_WITH_PROCESS = np.dtype([*((name, DTYPE[name]) for name in DTYPE.names or ()), ("process", "<u2")])


def _of_kinds(records: list[Records], *kinds: Kind) -> Records:
    """Return the records of some kinds, each with its process, in the order of time."""
    parts = []
    for process, written in enumerate(records):
        chosen = written[np.isin(written["kind"], kinds)]
        part = np.zeros(len(chosen), _WITH_PROCESS)
        for name in DTYPE.names or ():
            part[name] = chosen[name]
        part["process"] = process
        parts.append(part)
    found = np.concatenate(parts)
    return found[np.argsort(found["at"], kind="stable")]


def _count(records: list[Records], group: int, kind: Kind) -> int:
    return sum(int(np.count_nonzero((written["kind"] == kind) & (written["group"] == group))) for written in records)


def _sends(records: list[Records]) -> Sends:
    """Pair the begin of each send with its end, which its only thread wrote next."""
    parts = []
    for written in records:
        chosen = written[np.isin(written["kind"], (Kind.SEND, Kind.SENT, Kind.SEND_FAILED, Kind.SEND_UNKNOWN))]
        begins = np.flatnonzero(chosen["kind"] == Kind.SEND)
        ends = np.minimum(begins + 1, max(len(chosen) - 1, 0))
        begun, ended = chosen[begins], chosen[ends]
        whole = (ended["kind"] != Kind.SEND) & (ended["subject"] == begun["subject"])
        parts.append(
            np.stack(
                [
                    _as_int(begun["subject"]),
                    _as_int(begun["detail"]),
                    _as_int(begun["at"]),
                    np.where(whole, _as_int(ended["at"]), NEVER),
                    np.where(whole, _as_int(ended["kind"]), Kind.SEND_UNKNOWN),
                    _as_int(ended["queue"]),
                    ended["offset"],
                ]
            )
        )
    return Sends(*np.concatenate(parts, axis=1))


def _deliveries(records: list[Records], group: int) -> Deliveries:
    """Pair the begin of each handler call with its end and its acknowledgement."""
    kinds = (Kind.HANDLE, Kind.HANDLED, Kind.HANDLE_FAILED, Kind.COMMIT, Kind.REFUSED)
    parts, processes = [], []
    for process, all_of_it in enumerate(records):
        chosen = all_of_it[(all_of_it["group"] == group) & np.isin(all_of_it["kind"], kinds)]
        parts.append(chosen)
        processes.append(np.full(len(chosen), process, np.uint64))
    written, process_of = np.concatenate(parts), np.concatenate(processes)
    # One key for a message of a queue in one process; the records of its deliveries there then stand side by side,
    # in the order in which they were written.
    key = (written["queue"].astype(np.uint64) << 52) | (written["offset"].astype(np.uint64) << 16) | process_of
    order = np.argsort(key, kind="stable")
    written, key = written[order], key[order]
    kind = written["kind"]
    first = np.flatnonzero(kind == Kind.HANDLE)
    last = max(len(written) - 1, 0)

    def follows(places: Integers, *wanted: Kind) -> Flags:
        near = np.minimum(places, last)
        found: Flags = (places <= last) & (key[near] == key[first]) & np.isin(kind[near], wanted)
        return found

    ended = follows(first + 1, Kind.HANDLED, Kind.HANDLE_FAILED)
    end = np.minimum(first + 1, last)
    answer = np.minimum(first + 1 + ended, last)  # an acknowledgement ahead of the handler's end stands before it
    answered = follows(first + 1 + ended, Kind.COMMIT, Kind.REFUSED)
    committed = answered & (kind[answer] == Kind.COMMIT)
    return Deliveries(
        place=np.full(len(first), -1, np.int64),
        subject=_as_int(written["subject"][first]),
        queue=_as_int(written["queue"][first]),
        offset=written["offset"][first],
        process=_as_int(key[first] & np.uint64(0xFFFF)),
        begun=_as_int(written["at"][first]),
        ended=np.where(ended, _as_int(written["at"][end]), NEVER),
        failed=ended & (kind[end] == Kind.HANDLE_FAILED),
        right=written["detail"][first] == 1,
        asked=np.where(answered, _as_int(written["at"][answer]), NEVER),
        committed=committed,
        refused=answered & ~committed,
        epoch=np.where(answered, _as_int(written["subject"][answer]), 0),
        overtaken=ended & follows(first + 2, Kind.HANDLE),
    )


def _sorted(deliveries: Deliveries) -> Deliveries:
    """Sort by place, and those of one message by their begin."""
    return deliveries.only(np.lexsort((deliveries.begun, deliveries.place)))


def _as_int(values: NDArray[np.generic]) -> Integers:
    return values.astype(np.int64)
