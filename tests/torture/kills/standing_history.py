"""What became of messages while processes stood still: what all of them said, compared.

Everything here is pure, so that the judge can be tested with histories made by hand. Times are ms of the wall clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.crash.processes.child_campaign import TOPIC
from tests.torture.kills.child_standing import LEASE_MS, LEVEL_1_MS, RETRY_TOPIC, Place

Name = tuple[int, int]
"""Sender and number of a message."""
SOON_MS = 5_000
"""What is due goes on so soon, times the load."""


@dataclass(frozen=True, slots=True)
class Stand:
    """A process that stood still until it went on, or was killed."""

    life: int
    pid: int
    role: str
    where: str
    begin_ms: int
    end_ms: int
    holds_append: bool = False
    holds_queue: bool = False
    was_killed: bool = False


class Sent(NamedTuple):
    """What a sender knows of a message: ``fate`` is o, f, or i if it does not know."""

    fate: str
    due_ms: int


class Copy(NamedTuple):
    """A message as it stands in the topic, or for its retry."""

    place: Place
    name: Name
    due_ms: int
    stored_ms: int


class Call(NamedTuple):
    """A handler call. ``end_ms`` is None if it never ended, ``how`` e or r."""

    life: int
    thread: int
    place: Place
    begin_ms: int
    end_ms: int | None
    how: str


@dataclass(slots=True)
class Judgement:
    """What is wrong, and what is to be told."""

    problems: list[str] = field(default_factory=list)
    longest_ms: dict[str, int] = field(default_factory=dict)
    again: int = 0
    """Handler calls beyond the first of a place, of what a process had in hand when it stopped."""

    def took(self, what: str, ms: int, most_ms: float, about: object) -> None:
        """Keep the longest time; one that is too long is a problem."""
        self.longest_ms[what] = max(self.longest_ms.get(what, 0), ms)
        if ms > most_ms:
            self.problems.append(f"{what} took {ms} ms: {about}")


def sent_of(sender: int, lines: Iterable[str]) -> dict[Name, Sent]:
    """Read what a sender said."""
    found: dict[Name, Sent] = {}
    for line in lines:
        kind, number, *words = line.split()
        name = sender, int(number)
        found[name] = Sent("i", int(words[0])) if kind == "i" else found[name]._replace(fate=kind)
    return found


def copies_of(lines: Iterable[str]) -> list[Copy]:
    """Read what a watcher said of messages."""
    found = []
    for line in lines:
        if line.startswith("c "):
            _, topic, *words = line.split()
            queue_id, queue_offset, sender, number, due_ms, stored_ms = map(int, words)
            found.append(Copy(Place(topic, queue_id, queue_offset), (sender, number), due_ms, stored_ms))
    return found


def calls_of(life: int, lines: Iterable[str]) -> list[Call]:
    """Read what a consumer said."""
    running: dict[int, Call] = {}
    ended: list[Call] = []
    for line in lines:
        kind, topic = line.split()[0], line.split()[3]
        thread, at_ms, queue_id, queue_offset = (int(word) for word in line.split()[1:] if word != topic)
        if kind == "s":
            running[thread] = Call(life, thread, Place(topic, queue_id, queue_offset), at_ms, None, "")
        else:
            ended.append(running.pop(thread)._replace(end_ms=at_ms, how=kind))
    return [*ended, *running.values()]


def judge(sent: dict[Name, Sent], copies: list[Copy], calls: list[Call], stands: list[Stand], load: float) -> Judgement:
    """Compare all of it. ``load`` is how much longer work took on this machine."""
    found = Judgement()
    _judge_stored(sent, copies, found)
    in_hand = _in_hand(calls, stands)
    _judge_calls(copies, calls, in_hand, found)
    _judge_times(copies, calls, stands, SOON_MS * load, found)
    _judge_retries(copies, calls, in_hand, stands, SOON_MS * load, found)
    return found


def _judge_stored(sent: dict[Name, Sent], copies: list[Copy], found: Judgement) -> None:
    stored = Counter(copy.name for copy in copies if copy.place.topic == TOPIC)
    _tell(found, "lost", [name for name, (fate, _) in sent.items() if fate == "o" and name not in stored])
    _tell(found, "refused, and stored", [name for name, (fate, _) in sent.items() if fate == "f" and name in stored])
    _tell(found, "stored, and never sent", [name for name in stored if name not in sent])
    _tell(found, "stored twice", [name for name, times in stored.items() if times > 1])


def _in_hand(calls: list[Call], stands: list[Stand]) -> set[Call]:
    """Return the calls that may be repeated: of each thread the last one before a stand, and the first one after it.

    The last one may not be acknowledged when the process stops. The message of the first one may have been taken before
    that, and is handled although another member has it by then, whose acknowledgement counts. So may a call that raised
    while nobody could store its message for a retry.
    """
    of_threads: dict[tuple[int, int], list[Call]] = defaultdict(list)
    for call in calls:
        of_threads[call.life, call.thread].append(call)
    found = {call for call in calls if call.how == "r" and any(_could_store_nothing(call, each) for each in stands)}
    for stand in stands:
        for (life, _), theirs in of_threads.items():
            if life == stand.life:
                before = [call for call in theirs if call.begin_ms <= stand.begin_ms]
                after = [call for call in theirs if call.begin_ms >= stand.end_ms]
                found.update(sorted(before, key=_begin)[-1:], sorted(after, key=_begin)[:1])
    return found


def _judge_calls(copies: list[Copy], calls: list[Call], in_hand: set[Call], found: Judgement) -> None:
    of_places: dict[Place, list[Call]] = defaultdict(list)
    for call in calls:
        of_places[call.place].append(call)
    excused = {place: sum(call in in_hand for call in theirs) for place, theirs in of_places.items()}
    extra = {place: len(theirs) - 1 for place, theirs in of_places.items()}
    found.again = sum(extra.values())
    name_of = {copy.place: copy.name for copy in copies}
    _tell(found, "handled, and not stored", [place for place in of_places if place not in name_of])
    _tell(found, "handled again, and in no hand", [place for place, more in extra.items() if more > excused[place]])
    done = {name_of.get(call.place) for call in calls if call.how == "e"}
    _tell(found, "never handled", [copy.name for copy in copies if copy.name not in done])
    retries = Counter(copy.name for copy in copies if copy.place.topic == RETRY_TOPIC)
    may_be_again = Counter({copy.name: excused.get(copy.place, 0) for copy in copies if copy.place.topic == TOPIC})
    _tell(found, "sent back twice", [name for name, times in retries.items() if times - 1 > may_be_again[name]])


def _judge_times(copies: list[Copy], calls: list[Call], stands: list[Stand], soon_ms: float, found: Judgement) -> None:
    begin_ms: dict[Place, int] = {}
    for call in sorted(calls, key=_begin):
        begin_ms.setdefault(call.place, call.begin_ms)
    for copy in copies:
        if copy.place.topic == TOPIC:
            could_ms = _free(
                waited_since(copy.due_ms, copy.stored_ms, stands), stands, lambda stand: stand.holds_append
            )
            found.took("from due to stored", copy.stored_ms - could_ms, soon_ms, copy)
        if copy.place in begin_ms:
            could_ms = _free(copy.stored_ms, stands, lambda stand: stand.holds_append or stand.holds_queue)
            stood = any(each.role == "member" and each.begin_ms <= copy.stored_ms <= each.end_ms for each in stands)
            what = "from stored to handled while a member stood" if stood else "from stored to handled"
            found.took(what, begin_ms[copy.place] - could_ms, LEASE_MS + soon_ms, copy)


def _judge_retries(
    copies: list[Copy], calls: list[Call], in_hand: set[Call], stands: list[Stand], soon_ms: float, found: Judgement
) -> None:
    """See that what was sent back comes again in time, but for what nobody could send back."""
    name_of = {copy.place: copy.name for copy in copies}
    raised_ms = {name_of.get(call.place): call.end_ms for call in calls if call.how == "r" and call not in in_hand}
    for copy in copies:
        if copy.place.topic == RETRY_TOPIC and (at_ms := raised_ms.pop(copy.name, None)) is not None:
            since_ms = waited_since(at_ms + LEVEL_1_MS, copy.stored_ms, stands)
            could_ms = _free(since_ms, stands, lambda stand: stand.holds_append)
            found.took("from due to stored for a retry", copy.stored_ms - could_ms, soon_ms, copy)


def waited_since(due_ms: int, done_ms: int, stands: list[Stand]) -> int:
    """Return from when on five seconds count: what is due waits anew when another process stops meanwhile."""
    return max([due_ms, *(stand.begin_ms for stand in stands if due_ms < stand.begin_ms < done_ms)])


def _free(from_ms: int, stands: list[Stand], blocks: Callable[[Stand], bool]) -> int:
    """Return when what was due at a time could go on: when all had gone on that hold what it needs."""
    for stand in sorted(filter(blocks, stands), key=lambda stand: stand.begin_ms):
        if stand.begin_ms <= from_ms + SOON_MS and stand.end_ms > from_ms:
            from_ms = stand.end_ms
    return from_ms


def _could_store_nothing(call: Call, stand: Stand) -> bool:
    assert call.end_ms is not None
    return stand.holds_append and stand.begin_ms - SOON_MS <= call.end_ms <= stand.end_ms


def _begin(call: Call) -> int:
    return call.begin_ms


def _tell(found: Judgement, what: str, whom: list[Name] | list[Place]) -> None:
    if whom:
        shown = "; ".join(map(str, whom[:5]))
        found.problems.append(f"{what}: {len(whom)}, such as {shown}")
