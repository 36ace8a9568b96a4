"""Every single bit of a store is flipped, one at a time, and random damage is done to it.

What may come of a flip depends on what it hit:

====================================  ==================================================================================
hit                                   what may come of it
====================================  ==================================================================================
a record with our CRC                 it is stepped over and reported, and nothing else is affected
a record by a 4.9 broker              as before when its sizes, its place or the CRC of its body notice it; else this
                                      message is changed, and where a queue id or a number now names the place of
                                      another message, one of the two is missed
an entry of a consume queue           at worst its message is missed, and ``verify`` says so
anything else                         nothing, a second delivery, or a refusal that names the file
====================================  ==================================================================================

A message that differs in one bit from what was stored, or comes from another queue, is never delivered. Nothing ends by
a signal, hangs, or raises what is no error of the store. Each flip is looked at as a store that is opened afterwards,
appended to and closed (``opened``), and as one that is open already (``live``).

``rounds`` is the number of flips of each target: all of its bits when it has fewer. The full run has room for all.
"""

from __future__ import annotations

import mmap
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqclient.store import Message, MessageStore, TagSet, layout, open_store
from rmqclient.store.errors import QueueError
from rmqclient.store.inspect.verify import verify
from rmqclient.store.log import index_file
from rmqclient.store.log.consume_queue import DIRECTORY as QUEUES
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.settings import checkpoint
from tests.support.oracle import reference
from tests.support.stores import abandon
from tests.torture.damage import sandbox, specimens
from tests.torture.damage.damages import DAMAGES, SECTOR, Damage, flip, random_damage
from tests.torture.damage.specimens import CONFIG, FILE_BYTES, GROUP, TAGS, Delivered, Place, Specimen, deliver
from tests.torture.result import Result, Rig

CLAIM = "No flipped bit, and no damaged sector, makes a consumer get a wrong message, or the store crash or hang."

ENTRY = layout.CONSUME_QUEUE_ENTRY.size
LEFT = MessageQueue("left", 0)
PROBLEM = "!"
"""Begins an outcome that refutes the claim."""


@dataclass(frozen=True, slots=True)
class Target:
    """Bytes of one file whose bits are flipped, in one specimen."""

    name: str
    group: str
    """Row of the figures."""
    specimen: str
    path: Path
    start: int
    size: int
    may_miss: frozenset[Place] = frozenset()
    must_miss: bool = False
    """Each flip is noticed, and costs just these messages."""
    unprotected: bool = False
    """Its message may be changed without anybody noticing."""


class Bench:
    """The specimens in a fast directory, and one flip after the other."""

    def __init__(self, scratch: Path) -> None:
        ours, brokers = specimens.make(scratch / "ours"), specimens.make(scratch / "brokers", with_crc=False)
        self.specimens = {
            "open": specimens.make(scratch / "open"),
            "brokers open": specimens.make(scratch / "brokers-open", with_crc=False),
            "closed": ours,
            "killed": specimens.make(scratch / "killed", killed=True),
            "scanned": specimens.scanned(scratch / "scanned", ours),
            "brokers": brokers,
            "brokers scanned": specimens.scanned(scratch / "brokers-scanned", brokers),
        }
        self._messages = {name: specimen.messages for name, specimen in self.specimens.items()}
        self._wanted = {name: self._matching(name) for name in self.specimens}
        self._progress = {name: self._undamaged_progress(name) for name in self.specimens}
        self._live: dict[tuple[int, str], MessageStore] = {}

    def messages(self, name: str) -> dict[Place, bytes]:
        """Return what must be read from a specimen."""
        return self._messages[name]

    # --- a store that is opened after the flip ----------------------------------------------------

    def opened(self, target: Target, damage: Damage) -> str:
        """Damage the file, look at the store without and with opening it, and put it right again."""
        specimen = self.specimens[target.specimen]
        try:
            _damage_file(target.path, damage)
            reported = _is_reported(specimen.root)
            return self._open_and_look(target, specimen, reported)
        finally:
            specimen.restore()

    def _open_and_look(self, target: Target, specimen: Specimen, reported: bool) -> str:
        try:
            store = open_store(specimen.root, housekeeping=False, create=False)
        except QueueError as error:
            named = f"{specimen.root}/" in str(error) or str(specimen.root) in str(error)
            return "refused" if named else f"{PROBLEM} a refusal without a name: {error}"
        try:
            progress = self._deliver_to_group(store, target)
            found = deliver(store, self.messages(target.specimen))
            outcome = self._judge(target, found, reported)
            if outcome.startswith(PROBLEM):
                return outcome
            outcome = _append_one(store) or self._judge_progress(target, progress, outcome)
            return _close(store) or outcome
        finally:
            abandon(store)

    def _judge(self, target: Target, found: Delivered, reported: bool) -> str:
        missing = self.messages(target.specimen).keys() - found.places
        changed = [text for _, text in found.wrong]
        if target.unprotected and (found.wrong or missing):
            return self._judge_unprotected(target, found, missing)
        if changed:
            return f"{PROBLEM} {changed[0]}"
        if not missing <= target.may_miss:
            return f"{PROBLEM} {len(missing)} messages are missing, among them {min(missing - target.may_miss)}"
        if target.must_miss and missing != target.may_miss:
            return f"{PROBLEM} the damage was not noticed"
        if missing and not reported:
            return f"{PROBLEM} verify does not report what hides {min(missing)}"
        if missing:
            return "missed and reported"
        return "harmless and reported" if reported else "harmless"

    def _judge_unprotected(self, target: Target, found: Delivered, missing: set[Place]) -> str:
        known = self.messages(target.specimen).keys()  # at another place it is the changed message itself
        others = [text for place, text in found.wrong if place in known - target.may_miss]
        if others or not missing <= target.may_miss:
            return "another one affected"
        return "changed and delivered" if found.wrong else "noticed"

    # --- a group that has finished some messages --------------------------------------------------

    def _undamaged_progress(self, name: str) -> set[Place]:
        specimen = self.specimens[name]
        store = open_store(specimen.root, housekeeping=False)
        found = deliver(store, self.messages(name), GROUP)
        abandon(store)
        specimen.restore()
        return found.places

    def _deliver_to_group(self, store: MessageStore, target: Target) -> Delivered:
        return deliver(store, self.messages(target.specimen), GROUP)

    def _judge_progress(self, target: Target, found: Delivered, outcome: str) -> str:
        due = self._progress[target.specimen] - target.may_miss
        if target.unprotected:
            return outcome
        if found.wrong:
            return f"{PROBLEM} {found.wrong[0][1]}"
        if due - found.places:
            return f"{outcome}, passed over by a group"
        return f"{outcome}, delivered again" if found.places - self._progress[target.specimen] else outcome

    # --- a store that was open before the flip ----------------------------------------------------

    def live(self, target: Target, damage: Damage) -> str:
        """Damage the file while the store is open, take all messages with and without a filter, and put it right."""
        specimen = self.specimens[target.specimen]
        store = self._open_for_good(target.specimen)
        before = _damage_file(target.path, damage)
        try:
            found = deliver(store, self.messages(target.specimen))
            outcome = self._judge(target, found, reported=True)
            filtered = deliver(store, self.messages(target.specimen), tags=TAGS)
            if filtered.wrong and not target.unprotected:
                return f"{PROBLEM} {filtered.wrong[0][1]}"
            hidden = self._wanted[target.specimen] - filtered.places - target.may_miss
            if hidden and not target.unprotected:
                return f"{PROBLEM} {min(hidden)} is hidden from a filter"
            if self._wanted[target.specimen] - filtered.places and outcome.startswith("harmless"):
                reported = _is_reported(specimen.root)
                return "hidden from a filter and reported" if reported else f"{PROBLEM} hidden from a filter"
            return outcome
        finally:
            _damage_file(target.path, lambda content: content.__setitem__(slice(None), before))

    def _open_for_good(self, name: str) -> MessageStore:
        key = os.getpid(), name
        if key not in self._live:
            self.specimens[name].restore()
            self._live[key] = open_store(self.specimens[name].root, housekeeping=False)
        return self._live[key]

    def _matching(self, name: str) -> set[Place]:
        """Messages that the filter asks for; entries of delayed ones hold a time where others hold the tag's hash."""
        records = self.specimens[name].records.values()
        return {
            (record.topic, record.queue_id, record.queue_offset)
            for record in records
            if record.property_map.get("TAGS") in TAGS and record.topic != reference.SCHEDULE_TOPIC
        }


def _damage_file(path: Path, damage: Damage) -> bytes:
    """Change a file in place, as a disk does: neither its size nor its times. Returns what stood there."""
    status = path.stat()
    before = path.read_bytes() if status.st_size < 1 << 20 else b""
    if before:
        content = bytearray(before)
        damage(content)
        with path.open("r+b") as file:
            file.write(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
            damage(view)
    return before


def _is_reported(root: Path) -> bool:
    try:
        return bool(verify(root))
    except QueueError:
        return True


def _append_one(store: MessageStore) -> str:
    """Append behind the others; return what is wrong with that, or nothing."""
    ends = {queue: store.topics.max_offset(queue) for queue in store.topics.queues(LEFT.topic)}
    appender = store.appenders.make(store.topics.queues, lambda _: b"", prepare=False)
    try:
        result = appender.append(Message(LEFT.topic, b"after", tags="one"))
    except QueueError as error:
        return "refused" if str(store.root) in str(error) else f"{PROBLEM} no append: {error}"
    number = ends[result.queue]
    slot = store.groups.find_or_add("appended", store.topics.slot(result.queue), number)
    slot.restore(number, 0, 1)
    messages = store.grants.grant(slot, 1, TagSet(())).take(8, layout.ACK_WINDOW)
    if [message.body for message in messages] != [b"after"] or result.queue_offset != number:
        return f"{PROBLEM} what was appended afterwards was not delivered"
    return ""


def _close(store: MessageStore) -> str:
    """Close the store in order; return what is wrong with that, or nothing."""
    try:
        store.close()
    except QueueError as error:
        return "" if str(store.root) in str(error) else f"{PROBLEM} no close: {error}"
    return ""


def targets(bench: Bench) -> Iterator[Target]:
    """Yield everything whose bits are flipped."""
    for name in ("open", "closed", "scanned"):
        yield from _records(bench.specimens[name], name, "records with our CRC", KINDS + OUR_KINDS, must_miss=True)
    for name in ("brokers open", "brokers", "brokers scanned"):
        yield from _records(bench.specimens[name], name, "records by a 4.9 broker", KINDS, unprotected=True)
    for name in ("open", "closed", "killed", "scanned"):
        specimen = bench.specimens[name]
        at = specimen.kinds["blank record"]
        yield Target("blank record", "blank record", name, specimen.log_path(at), at % FILE_BYTES, 8)
        yield from _entries(bench, name)
    for name in ("closed", "killed"):
        root = bench.specimens[name].root
        yield Target("checkpoint", "checkpoint", name, root / checkpoint.FILE_NAME, 0, layout.CHECKPOINT.size)
        for at in layout.LOW_WATER_AT:
            yield Target("low-water mark", "checkpoint", name, root / checkpoint.FILE_NAME, at, layout.LOW_WATER.size)
        yield from _runtime(bench.specimens[name], name)
        yield from _index(root, name)
        yield from _config(root, name)


KINDS = (
    "tags, keys, properties", "IPv6 hosts", "delayed", "delivered after its delay", "half transaction",
    "end of a transaction", "committed transaction", "retry", "dead letter", "left 0", "rght 29", "empty body",
    "no property", "late 0", "last",
)  # fmt: skip
OUR_KINDS = (
    "appended, plain", "appended, tags, keys, properties", "appended, empty body", "member of a batch", "appended last",
)  # fmt: skip


def _records(
    specimen: Specimen,
    name: str,
    group: str,
    kinds: tuple[str, ...],
    *,
    must_miss: bool = False,
    unprotected: bool = False,
) -> Iterator[Target]:
    for kind in kinds:
        offset = specimen.kinds[kind]
        record = specimen.records[offset]
        place = frozenset({(record.topic, record.queue_id, record.queue_offset)} if record.in_a_queue else ())
        path = specimen.log_path(offset)
        yield Target(kind, group, name, path, offset % FILE_BYTES, record.size, place, must_miss, unprotected)


def _entries(bench: Bench, name: str) -> Iterator[Target]:
    per_file = CONFIG.consume_queue_file_entries
    for topic, numbers in (
        ("left", (0, 12, per_file - 1, per_file, 30)),
        ("late", (0, specimens.LATE - 1, specimens.LATE)),
    ):
        for number in numbers:
            base = number - number % per_file
            path = bench.specimens[name].root / QUEUES / topic / "0" / f"{base * ENTRY:020d}"
            place = frozenset({(topic, 0, number)} & bench.messages(name).keys())
            yield Target(f"entry {number} of {topic}", "entries", name, path, (number - base) * ENTRY, ENTRY, place)


def _runtime(specimen: Specimen, name: str) -> Iterator[Target]:
    """The header, an arrival lane, and of each table a slot in use and one that is not."""
    content = specimen.shared.read_bytes()
    of_left = content.index(b"left", layout.QUEUE_TABLE_AT) - layout.QUEUE_SLOT.at["topic"]
    unused_queue = layout.QUEUE_TABLE_AT + 23 * layout.QUEUE_SLOT.size
    unused_group = layout.GROUP_QUEUE_TABLE_AT + layout.GROUP_QUEUE_SLOT.size
    chosen = {
        "header": (0, layout.RUNTIME_HEADER.size),
        "arrival lane": (layout.ARRIVAL_LANES_AT, layout.ARRIVAL_LANE_STRIDE),
        "queue slot": (of_left, layout.QUEUE_SLOT.size),
        "unused queue slot": (unused_queue, layout.QUEUE_SLOT.size),
        "group-queue slot": (layout.GROUP_QUEUE_TABLE_AT, layout.GROUP_QUEUE_SLOT.size),
        "unused group-queue slot": (unused_group, layout.GROUP_QUEUE_SLOT.size),
        "member slot": (layout.MEMBER_TABLE_AT, layout.MEMBER_SLOT.size),
        "worker slot": (layout.WORKER_TABLE_AT, layout.WORKER_SLOT.size),
    }
    for part, (start, size) in chosen.items():
        yield Target(part, f"runtime file, {part}", name, specimen.shared, start, size)


def _index(root: Path, name: str) -> Iterator[Target]:
    """The header, a slot in use, the first entry and one in the middle."""
    paths = index_file.paths(root)
    if not paths:
        return  # one that was killed before its records were indexed
    path = paths[0]
    content, slots_at = path.read_bytes(), layout.INDEX_HEADER.size
    entries_at = slots_at + CONFIG.index_slots * layout.INDEX_SLOT_SIZE
    size = layout.INDEX_ENTRY.size
    used = next(at for at in range(slots_at, entries_at, layout.INDEX_SLOT_SIZE) if any(content[at : at + 4]))
    yield Target("index header", "index", name, path, 0, layout.INDEX_HEADER.size)
    yield Target("index slot", "index", name, path, used, layout.INDEX_SLOT_SIZE)
    for number in (1, 9):
        yield Target(f"index entry {number}", "index", name, path, entries_at + number * size, size)


def _config(root: Path, name: str) -> Iterator[Target]:
    for path in sorted([*(root / "config").iterdir(), root / "store.json", root / "lock"]):
        yield Target(path.name, path.name, name, path, 0, path.stat().st_size)


@dataclass(frozen=True, slots=True)
class Case:
    """One damage of one target."""

    target: Target
    words: str
    """Repeats it."""
    damage: Damage

    @property
    def is_live(self) -> bool:
        """Whether the store is open when it is damaged."""
        return self.target.specimen in ("open", "brokers open")

    @property
    def row(self) -> str:
        """Row of the figures."""
        return f"{self.target.group}, {'while open' if self.is_live else 'then opened'}"


def flip_cases(bench: Bench, rounds: int, rng: random.Random) -> Iterator[Case]:
    """Yield each bit of each target, or as many as there are rounds."""
    for target in targets(bench):
        bits = range(8 * target.size)
        chosen = bits if len(bits) <= rounds else sorted(rng.sample(bits, rounds))
        for bit in chosen:
            position = target.start + bit // 8
            words = f"bit {bit % 8} of byte {position} of {target.path.name} ({target.name}, {target.specimen})"
            yield Case(target, words, flip(position, bit % 8))


def random_cases(bench: Bench, rounds: int, rng: random.Random) -> Iterator[Case]:
    """Yield random damage: several bits, bursts, and sectors that are zero, swapped, or another one's."""
    for _ in range(rounds):
        name = rng.choice(("closed", "killed", "scanned"))
        specimen = bench.specimens[name]
        path = rng.choice(sorted(path for path, content in specimen.files.items() if content))
        size = len(specimen.files[path])
        used = size if path.parent.name != "commitlog" else 2 * SECTOR + specimen.kinds["blank record"]
        every = frozenset(bench.messages(name))
        target = Target("random damage", "random damage", name, path, 0, size, every)
        kind, damage = rng.choice(sorted(DAMAGES.items()))
        seed = rng.randrange(1 << 32)
        yield Case(
            target,
            f"{kind} {seed} in {path.relative_to(specimen.root)} ({name})",
            random_damage(damage, seed, min(size, used)),
        )


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Flip and damage; without a memory file system the scratch directory is used, which takes much longer."""
    fast = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else scratch
    with tempfile.TemporaryDirectory(prefix="rmq-flips-", dir=fast) as directory:
        bench, rng = Bench(Path(directory)), random.Random(seed)
        cases = [*flip_cases(bench, rounds, rng), *random_cases(bench, rounds, rng)]
        return _judged(bench, cases)


def _judged(bench: Bench, cases: list[Case]) -> Result:
    def one(number: int) -> str:
        case = cases[number]
        return (bench.live if case.is_live else bench.opened)(case.target, case.damage)

    result = Result(CLAIM)
    counted: Counter[str] = Counter()
    for number, outcome in sandbox.outcomes(len(cases), one):
        case = cases[number]
        refuted = outcome.startswith(PROBLEM) or sandbox.ending(outcome)
        counted[f"{case.row}: {'refuted' if refuted else outcome}"] += 1
        if refuted:
            result.problems.append(f"{case.words}, {case.row}: {outcome}")
    result.figures = {"damages": len(cases), **dict(sorted(counted.items()))}
    return result


RIG = Rig("flips", 10_000, run)
