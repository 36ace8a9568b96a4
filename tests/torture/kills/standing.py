"""Processes that stand still at each role and at each step of it, for longer than its lease, while others go on.

One store from the first round to the last, with a sender, two consumers and a watcher that never stop. A round is a
process that is stopped; up to four stand at once. Meanwhile a prober does what some of them may keep it from, and
must be told whom it waits for. Then they go on, or are killed, and the next ones stand.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rmqclient import Message, Producer
from rmqclient.store import open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.files.file_lock import COMPACTION_BYTE, GATE_BYTE, INDEX_BYTE, TOPIC_BYTE
from rmqclient.store.inspect.verify import verify
from tests.crash.processes.child_campaign import QUEUES, TOPIC
from tests.support.host.load import slowdown
from tests.support.oracle import reference
from tests.torture.kills import child_standing as child
from tests.torture.kills.child_delays import now_ms
from tests.torture.kills.standing_history import (
    SOON_MS,
    Judgement,
    Stand,
    calls_of,
    copies_of,
    judge,
    sent_of,
    waited_since,
)
from tests.torture.lives import Life, Lives
from tests.torture.result import Result, Rig

CLAIM = (
    "Whichever process stands still, and wherever in its work, for longer than its lease: delayed messages, retries "
    "and flushes go on within five seconds and queues change hands, or who waits for it is told which process it is. "
    "Nothing is lost, and nothing is done twice when it goes on or is killed."
)
MEMORY = Path("/dev/shm")
AT_ONCE = 4
"""So many stand at once, at most."""
IN_APPEND = 0.15
"""Of the batches: somebody stands in an append."""
STANDS_S = 4.0
"""Above every lease: of the housekeeper, of a member, of the leader of a flush."""
KILLED = 0.3
BEFORE = "before "
"""With a step: a process stands somewhere, and has not come to that step."""
REACHES_S = 4.0
"""A process that does not come to its crash point so soon is stopped where it is."""
PROBES_S = 60.0
WAITS_FOR_A_LOCK_MS = 5_000
DRAIN_S = 60.0

HOLDS_APPEND = [
    *(each for each in CrashPoint if each < CrashPoint.APPEND_FINISHED and each is not CrashPoint.BLANK_WRITTEN),
    CrashPoint.PROGRESS_ADVANCED,
    CrashPoint.TIMER_CLEARING,
    CrashPoint.TIMER_CLEARED,
]
HOLDS_QUEUE = [CrashPoint.ACK_LOCKED, CrashPoint.ACK_MARKED, CrashPoint.ACK_ADVANCING, CrashPoint.ACK_CLEARED]
ACKNOWLEDGED = CrashPoint.ACK_FINISHED
IN_THE_HOUSE = [
    CrashPoint.APPEND_FINISHED,
    CrashPoint.PROGRESS_ADVANCED,
    CrashPoint.FILE_ALLOCATED,
    CrashPoint.FLUSH_SYNCED,
    CrashPoint.OFFSETS_TEMPORARY,
    CrashPoint.DELAY_OFFSETS_TEMPORARY,
    CrashPoint.INDEX_SLOT_WRITTEN,
    CrashPoint.INDEX_FILE_FULL,
    CrashPoint.INDEX_WRITTEN,
    CrashPoint.TIMER_CLEARING,
    CrashPoint.TIMER_CLEARED,
    CrashPoint.TIMER_DONE_TEMPORARY,
    CrashPoint.COMPACTION_HALF_WRITTEN,
    CrashPoint.COMPACTION_WRITTEN,
    CrashPoint.COMPACTION_SYNCED,
    CrashPoint.COMPACTION_RENAMED,
    CrashPoint.COMPACTION_DONE,
]
CLEANING = [each for each in CrashPoint if CrashPoint.RETENTION_ADVANCED <= each <= CrashPoint.RETENTION_QUEUE_ADVANCED]
BYTES = {"gate": GATE_BYTE, "topic": TOPIC_BYTE, "index": INDEX_BYTE, "compaction": COMPACTION_BYTE}
PLACES = {
    "housekeeper": ["idle", *(each.name for each in IN_THE_HOUSE)],
    "supervisor": ["idle", *(each.name for each in IN_THE_HOUSE)],
    "member": ["idle", "in its handler", "behind its handler", *(each.name for each in [*HOLDS_QUEUE, ACKNOWLEDGED])],
    "holder of a byte": list(BYTES),
    "sender by key": [CrashPoint.ONCE_NOT_FOUND.name],
    "sender": [each.name for each in HOLDS_APPEND if each not in IN_THE_HOUSE],
    "leader of a flush": [CrashPoint.FLUSH_SYNCED.name],
    "cleaner": [each.name for each in CLEANING],
}
"""Each role, and where in it a process may stand."""
PROBES = {"gate": "open", "topic": "topic", "index": "once", CrashPoint.ONCE_NOT_FOUND.name: "key"}
"""What is refused while a process stands there."""


@dataclass(slots=True)
class Victim:
    """A process that stands still."""

    life: Life
    role: str
    where: str
    since_ms: int


class Standing:
    """One store and its processes."""

    def __init__(self, root: Path, lives: Lives, seed: int) -> None:
        self.count: Counter[str] = Counter()
        self.problems: list[str] = []
        self.longest_ms: Counter[str] = Counter()
        self._root = root
        self._lives = lives
        self._chance = random.Random(seed)
        self._load = slowdown()
        self._keepers: dict[Life, int] = {}
        """With the pipe for orders of each."""
        self._consumers: list[Life] = []
        self._senders: list[Life] = []
        self._stands: list[Stand] = []
        self._probed = 0

    def run(self, rounds: int) -> Judgement:
        """Stop so many processes, then let everything come, and judge."""
        self._begin()
        while self.count["stops"] < rounds and not self.problems:
            self._batch(min(rounds - self.count["stops"], self._chance.randint(1, AT_ONCE)))
        self._finish()
        return self._judge()

    # --- those that go on -------------------------------------------------------------------------

    def _begin(self) -> None:
        with Lives(self._root.with_name("beginning")) as beginning:
            if beginning.end(beginning.start("beginning", lambda _: make_topics(self._root)), 0, PROBES_S):
                raise RuntimeError("the store could not be made")
        self._keep_house()
        self._keep_house()
        self._watcher = self._lives.start("watcher", lambda evidence: child.watch(self._root, evidence))
        orders, self._probes = os.pipe()
        self._prober = self._lives.start("prober", lambda evidence: child.probe(self._root, evidence, orders))
        for _ in range(2):
            self._consumers.append(self._lives.start("consumer", lambda evidence: child.consume(self._root, evidence)))
        seed = self._chance.getrandbits(32)
        self._senders.append(self._lives.start("sender", lambda evidence: child.send(self._root, evidence, 0, seed)))

    def _keep_house(self, *, prefer: bool = False) -> Life:
        orders, give = os.pipe()
        role = "supervisor" if prefer else "keeper"
        life = self._lives.start(role, lambda evidence: child.keep_house(self._root, evidence, orders, prefer=prefer))
        os.close(orders)
        self._keepers[life] = give
        return life

    def _housekeeper(self, but: tuple[Life, ...] = ()) -> Life | None:
        """Return who has said that it has the role, and not that it has not any more."""
        for life in self._keepers:
            if life not in but and (said := self._lives.lines(life.number)) and said[-1].startswith("h "):
                return life
        return None

    # --- one batch --------------------------------------------------------------------------------

    def _batch(self, size: int) -> None:
        """Let some processes stand, see what others can do, and let them go on."""
        self._load = max(self._load, slowdown())
        victims: list[Victim] = []
        for role, where in self._chosen(size):
            if (victim := self._stopped(role, where)) is not None:
                victims.append(victim)
        stood = time.monotonic()
        self._see_the_role_change_hands(victims)
        self._probe(victims)
        time.sleep(max(0.0, stood + STANDS_S - time.monotonic()))  # all leases have ended by then
        for victim in victims:
            self._go_on(victim)
        for victim in victims:
            self._leave(victim)
        for life, how in self._lives.ended().items():
            self.problems.append(f"{life} ended: {how}")
        self._load = max(self._load, slowdown())

    def _chosen(self, size: int) -> list[tuple[str, str]]:
        """Choose roles, each with a place.

        Who stands in an append stands alone: nobody else gets anywhere. A supervisor and the housekeeper are one, there
        must be something to clean, and nobody opens the store behind a held gate.
        """
        chance = self._chance
        left_out = {chance.choice(("housekeeper", "supervisor"))}
        if len([*self._root.glob("commitlog/*")]) <= child.KEPT_LOG_FILES + 1:
            left_out.add("cleaner")
        in_append = chance.random() < IN_APPEND
        places = {
            role: fitting
            for role, theirs in PLACES.items()
            if role not in left_out and (fitting := [where for where in theirs if is_append(where) == in_append])
        }
        roles = chance.sample(list(places), 1 if in_append else min(size, len(places)))
        return sorted(((role, chance.choice(places[role])) for role in roles), key=lambda each: each[1] == "gate")

    def _stopped(self, role: str, where: str) -> Victim | None:
        """Start a victim, or take the housekeeper, and wait until it has stopped."""
        life = self._ordered(role, where) if role in ("housekeeper", "supervisor") else self._started(role, where)
        if life is None:
            return None
        if where == "idle":
            time.sleep(self._chance.uniform(0, 0.5))
            os.kill(life.pid, signal.SIGSTOP)
        if not self._lives.has_stopped(life, REACHES_S):
            self.count["stopped before they came to their step"] += 1
            os.kill(life.pid, signal.SIGSTOP)
            where = f"{BEFORE}{where}"
            if not self._lives.has_stopped(life, REACHES_S):
                self.count["ended before they came to their step"] += 1
                self._leave(Victim(life, role, where, now_ms()))
                return None
        self.count["stops"] += 1
        self.count[f"stops of role: {role}"] += 1
        return Victim(life, role, where, now_ms())

    def _ordered(self, role: str, where: str) -> Life | None:
        """Let the housekeeper, which may be a new supervisor, stop at a step of its work."""
        life = self._keep_house(prefer=True) if role == "supervisor" else None
        if not self._wait(lambda: self._housekeeper() in ({life} if life else self._keepers), 1000 * PROBES_S):
            self.problems.append("no process became the housekeeper")
            return None
        life = life or self._housekeeper()
        assert life is not None
        if where != "idle":
            os.write(self._keepers[life], f"{where} {self._chance.randint(0, 3)}\n".encode())
        return life

    def _started(self, role: str, where: str) -> Life:
        root, start, chance = self._root, self._lives.start, self._chance
        point = CrashPoint[where] if where in CrashPoint.__members__ else CrashPoint.APPEND_LOCKED
        if role == "member":
            calls = chance.randint(1, 8)
            life = start(role, lambda evidence: child.be_member(root, evidence, where, calls))
            self._consumers.append(life)
        elif role in ("sender", "leader of a flush"):
            sender = len(self._senders)
            life = start(role, lambda evidence: child.append(root, evidence, sender, point))
            self._senders.append(life)
        elif role == "sender by key":
            life = start(role, lambda _: child.send_once(root))
        elif role == "cleaner":
            life = start(role, lambda _: child.clean(root, point))
        else:
            life = start(role, lambda _: child.hold(root, BYTES[where]))
        return life

    def _see_the_role_change_hands(self, victims: list[Victim]) -> None:
        """If the housekeeper stands, another process must become it."""
        stands = tuple(victim.life for victim in victims)
        for victim in victims:
            if victim.life in self._keepers:
                if self._wait(lambda: self._housekeeper(but=stands) is not None, SOON_MS):
                    self._took("the housekeeper's role changed hands", now_ms() - victim.since_ms)
                else:
                    self.problems.append(f"the role stays with {victim.life}, which stands still ({victim.where})")

    def _probe(self, victims: list[Victim]) -> None:
        """Do what they keep others from, and one other thing: it is done, or the error names one of them."""
        pids = {victim.life.pid for victim in victims}
        refused = {PROBES[victim.where] for victim in victims if victim.where in PROBES}
        for name in sorted(refused | {self._chance.choice(("open", "topic", "once"))}):
            took_ms, answer = self._answer_to(name)
            self._took(f"an answer to: {name}", took_ms)
            if answer == "ok" and name not in refused:
                self.count["probes done"] += 1
            elif answer[:1].isdigit() and pids & {*map(int, answer.split(","))}:
                self.count["probes told whom they wait for"] += 1
            else:
                self.problems.append(f"the answer to {name} was {answer} while {described(victims)}")
            if took_ms > (WAITS_FOR_A_LOCK_MS + SOON_MS) * self._load:
                self.problems.append(f"{name} took {took_ms} ms while {described(victims)}")

    def _answer_to(self, name: str) -> tuple[int, str]:
        """Let the prober do something; return how many ms that took, and ``ok`` or the processes that it waits for."""
        os.write(self._probes, f"{name}\n".encode())
        self._probed += 1
        if not self._wait(lambda: len(self._lives.lines(self._prober.number)) == self._probed, PROBES_S * 1_000):
            return int(PROBES_S * 1_000), "none at all"
        _, _, took_ms, answer = self._lives.lines(self._prober.number)[-1].split(maxsplit=3)
        return int(took_ms), answer

    def _took(self, what: str, ms: int) -> None:
        self.longest_ms[f"until {what}"] = max(self.longest_ms[f"until {what}"], ms)

    def _go_on(self, victim: Victim) -> None:
        killed = self._chance.random() < KILLED or victim.where.startswith(BEFORE)  # its crash point is armed still
        held_append, held_queue = is_append(victim.where), victim.where in {each.name for each in HOLDS_QUEUE}
        end_ms = now_ms()
        if killed:
            self.count["kills"] += 1
            self._lives.kill(victim.life)
        else:
            os.kill(victim.life.pid, signal.SIGCONT)
        self._stands.append(
            Stand(
                victim.life.number, victim.life.pid, victim.role, victim.where, victim.since_ms, end_ms,
                held_append, held_queue, killed,
            )
        )  # fmt: skip

    def _leave(self, victim: Victim) -> None:
        """Let a victim that goes on end in order; the housekeeper stays, and a killed one has a successor."""
        is_alive = victim.life in self._lives.alive
        if victim.role == "housekeeper":
            if not is_alive:
                self._forget(victim.life)
                self._keep_house()
            return
        if is_alive:
            if victim.role == "member":
                time.sleep(self._chance.uniform(0, 0.5))  # it finds that its queues are gone
            told = signal.SIGTERM if victim.role in ("member", "supervisor") else 0
            if status := self._lives.end(victim.life, told, DRAIN_S):
                words = self._lives.last_words(victim.life)
                self.problems.append(f"{victim.life}, which stood {victim.where}, ended with {status}: {words}")
        if victim.role == "supervisor":
            self._forget(victim.life)

    def _forget(self, keeper: Life) -> None:
        os.close(self._keepers.pop(keeper))

    # --- the end ----------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Let everything be delivered and handled, and everybody leave."""
        self._end(self._senders[0])
        if self._lives.end(
            self._lives.start("end", lambda _: child.wait_until_quiet(self._root)), 0, DRAIN_S * self._load
        ):
            self.problems.append("not everything was delivered and handled")
        time.sleep(0.2)  # the watcher looks once more
        self._lives.kill(self._prober)
        os.close(self._probes)
        for life in self._lives.alive:
            self._end(life)

    def _end(self, life: Life) -> None:
        if status := self._lives.end(life, signal.SIGTERM, DRAIN_S):
            self.problems.append(f"{life} ended with {status}: {self._lives.last_words(life)}")

    def _judge(self) -> Judgement:
        lines = self._lives.lines
        watched = lines(self._watcher.number)
        sent = {}
        for sender, life in enumerate(self._senders):
            sent.update(sent_of(sender, lines(life.number)))
        calls = [call for life in self._consumers for call in calls_of(life.number, lines(life.number))]
        copies = copies_of(watched)
        found = judge(sent, copies, calls, self._stands, self._load)
        self._judge_refusals(found)
        for line in watched:
            if line.startswith("w "):
                due_ms, flushed_ms = map(int, line.split()[1:])
                since_ms = waited_since(due_ms, flushed_ms, self._stands)
                found.took("from published to flushed", flushed_ms - since_ms, SOON_MS * self._load, line)
        for problem in [*map(str, verify(self._root)), *reference.check_store(self._root)]:
            found.problems.append(problem)
        found.problems += self.problems
        self.count.update({"sent": sum(each.fate == "o" for each in sent.values()), "stored": len(copies)})
        self.count.update({"handled": len(calls), "handled again, in hand when a member stopped": found.again})
        return found

    def _judge_refusals(self, found: Judgement) -> None:
        """A send is refused only while somebody stands in an append, and names that process."""
        for line in self._lives.lines(self._senders[0].number):
            if line.startswith("f "):
                _, number, at_ms, *named = line.split()
                self.count["sends refused"] += 1
                standing = {
                    each.pid for each in self._stands
                    if each.holds_append and each.begin_ms <= int(at_ms) <= each.end_ms + SOON_MS
                }  # fmt: skip
                if not (named[0][0].isdigit() and standing & {*map(int, named[0].split(","))}):
                    found.problems.append(f"send {number} was refused by {' '.join(named)}; in an append {standing}")

    def _wait(self, is_so: Callable[[], bool], most_ms: float) -> bool:
        until = time.monotonic() + most_ms * self._load / 1_000
        while not is_so():
            if time.monotonic() > until:
                return False
            time.sleep(0.005)
        return True


def make_topics(root: Path) -> None:
    """Make the store and its topics, those that the first delay and the first retry would make too.

    Whoever makes a topic waits for the holder of the byte of topics, and no sender of the rig may wait for that.
    """
    with open_store(root, child.CONFIG, housekeeping=False) as store, Producer(store) as producer:
        producer.create_topic(TOPIC, QUEUES)
        producer.create_topic(child.PRICES, 1, cleanup_policy="compact")
        producer.create_topic(child.ONCE, 1)
        store.topics.create(child.RETRY_TOPIC, 1)
        producer.send(Message(child.ONCE, b"by level"), delay_level=1)
        producer.send(Message(child.ONCE, b"by timer"), delay=0.05)


def is_append(where: str) -> bool:
    """Tell whether a process that stands there holds the append mutex."""
    return where in {each.name for each in HOLDS_APPEND}


def described(victims: list[Victim]) -> str:
    """Say who stands, and where."""
    return ", ".join(f"{each.role} {each.life.pid} stands at {each.where}" for each in victims)


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Stop so many processes."""
    place = MEMORY if MEMORY.is_dir() else scratch
    with (
        tempfile.TemporaryDirectory(prefix="rmq-standing-", dir=place, ignore_cleanup_errors=True) as directory,
        Lives(scratch / "evidence") as lives,
    ):
        standing = Standing(Path(directory) / "store", lives, seed)
        found = standing.run(rounds)
    longest = {**standing.longest_ms, **found.longest_ms}
    return Result(
        CLAIM,
        {**standing.count, **{f"longest {what}, s": round(ms / 1_000, 2) for what, ms in sorted(longest.items())}},
        found.problems,
    )


RIG = Rig("standing", 300, run)
