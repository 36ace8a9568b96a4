"""Two hosts, one network between them, and what goes wrong: kills at steps, partitions, power cuts, changes of roles.

After each round the rig looks at both logs.

A *life* begins with two new stores. In each round one host sends and the other one follows, through a network that may
fail. Then one of them, or both, are killed, and one of these things happens:

==========  ===========================================================================================================
``on``      nothing: both start again
``swap``    the replica is promoted, perhaps twice without a message between; the old primary, which still sends, is
            told, and follows the new one
``power``   the primary's host loses what it had not flushed, and takes back what its replica has; perhaps the replica
            is promoted then, before it has heard of the epoch that this began
==========  ===========================================================================================================
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rmqclient.errors import QueueError, StoreUnsettled
from rmqclient.replication import promotion
from rmqclient.replication.returning.fencing import note_replaced
from rmqclient.replication.returning.rejoining import look, rejoin
from rmqclient.store import Message, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.recovery import replica
from rmqclient.store.recovery.replica import become_replica
from rmqclient.store.settings.lineage import begin_lineage, is_followed, read_lineage
from rmqclient.store.settings.replica_mark import ReplicaMark, read_mark
from rmqclient.store.settings.replication import OnLost
from tests.replication.pairs import log_bytes
from tests.support.stores import SMALL, TOPIC, appender_of
from tests.torture.replicas import hosts, judge, proxy
from tests.torture.replicas.hosts import NO_BROKER, Blow, Host, kept_port, settle
from tests.torture.replicas.proxy import Trouble
from tests.torture.result import Result, Rig

CLAIM = (
    "A replica is a prefix of its primary; a message whose send said that it is replicated is there after any "
    "promotion and after a power cut of its primary; a fenced primary takes nothing; logs that part are cut to a byte."
)

_ROUNDS_OF_A_LIFE = 12
_OF_THE_PRIMARY = [point for point in CrashPoint if point <= CrashPoint.APPEND_FINISHED] + [
    CrashPoint.MISSING_NOTED,
    CrashPoint.REPLICATED_SAID,
    CrashPoint.FLUSH_SYNCED,
]
_OF_THE_FOLLOWER = [*(p for p in CrashPoint if p.name.startswith("REPLICA_")), CrashPoint.FLUSH_SYNCED]
_OF_A_SWAP = [
    CrashPoint.CUT_ANNOUNCED,
    CrashPoint.CUT_HALF_ZEROED,
    CrashPoint.CUT_ZEROED,
    CrashPoint.PROMOTION_EPOCH_WRITTEN,
    CrashPoint.RECOVERY_TAIL_CUT,
    CrashPoint.RECOVERY_APPLIED,
]
_SIZES = ((300,), (100, 900), (8, 2_000, 40))


@dataclass
class Life:
    """Two stores, which of them is the primary, and what is known to be replicated."""

    primary: Path
    replica: Path
    notes: Path
    sizes: tuple[int, ...]
    on_lost: OnLost
    first: int = 0
    """The number of the next message."""
    replicated: set[int] = field(default_factory=set)

    @property
    def old_notes(self) -> Path:
        """What an old primary says to be replicated when another store took its place: nothing may be."""
        return self.notes.with_name("old")


class Replication:
    """The rig: one life after the other."""

    def __init__(self, seed: int, scratch: Path, port: int, wire_port: int) -> None:
        """The primary listens at ``port``, the network before it at ``wire_port``."""
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._seed = seed
        self._scratch = scratch
        self._chance = random.Random(seed)
        self._port, self._wire_port = port, wire_port
        self._number = 0
        self._life = self._fresh()

    def run(self, rounds: int) -> None:
        """Do so many rounds, or until too much is wrong."""
        for number in range(rounds):
            if number % _ROUNDS_OF_A_LIFE == 0:
                self._life = self._fresh()
            before = len(self.problems)
            self._round()
            self.counts["rounds"] += 1
            if len(self.problems) > before:
                self.problems[before:] = [f"seed {self._seed}, round {number}: {p}" for p in self.problems[before:]]
                self._life = self._fresh()
            if len(self.problems) >= 20:
                return

    def _fresh(self) -> Life:
        self._number += 1
        root = self._scratch / f"life-{self._number}"
        root.mkdir()
        chance = self._chance
        sizes, on_lost = chance.choice(_SIZES), chance.choice([OnLost.REFUSE, OnLost.DEGRADE])
        life = Life(root / "a", root / "b", root / "notes", sizes, on_lost)
        with open_store(life.primary, SMALL, housekeeping=False) as store:
            appender_of(store).append(Message(TOPIC, b"first;"))
        with open_store(life.primary, housekeeping=False):
            begin_lineage(life.primary)
        become_replica(life.replica, SMALL, self._mark())
        return life

    def _mark(self) -> ReplicaMark:
        return ReplicaMark(f"127.0.0.1:{self._port}", NO_BROKER, 1)

    # --- a round --------------------------------------------------------------------------------------

    def _round(self) -> None:
        chance = self._chance
        trouble = chance.choice(list(Trouble))
        self.counts[f"network: {trouble}"] += 1
        who = chance.choice(["nobody", "primary", "follower", "both"])
        running = self._start(
            trouble,
            _blow(chance, _OF_THE_PRIMARY) if who in ("primary", "both") else None,
            _blow(chance, _OF_THE_FOLLOWER) if who in ("follower", "both") else None,
        )
        is_silent = trouble in (Trouble.DEAF, Trouble.MUTE, Trouble.HOLE)
        until = time.monotonic() + (2.5 * hosts.SILENCE_S if is_silent else chance.choice((0.1, 0.3, 0.6)))
        while time.monotonic() < until and running[0].is_alive():
            time.sleep(0.005)
        for host in chance.sample(running, len(running)):
            self.counts["kills at a step"] += not host.is_alive()
            host.kill()
            self.counts["kills"] += 1
            if wrong := hosts.errors_are(host, {0}):
                self.problems.append(wrong)
        self._judge()
        match chance.choice(("on", "swap", "swap", "power")):
            case "swap":
                self._swap(chance.random() < 0.3)
            case "power":
                self._lose_power()
                if chance.random() < 0.5:
                    self._swap(is_twice=False)

    def _start(self, trouble: Trouble, of_primary: Blow, of_follower: Blow) -> list[Host]:
        life, port, wire_port = self._life, self._port, self._wire_port
        seed = self._chance.getrandbits(32)
        return [
            Host(self._sending(port, life.notes, life.on_lost), of_primary),
            Host(lambda: proxy.run(wire_port, port, trouble, seed)),
            Host(lambda: hosts.follower(life.replica, wire_port), of_follower),
        ]

    def _sending(self, port: int, notes: Path, on_lost: OnLost) -> Callable[[], None]:
        """Return what sends to the primary, with numbers that no other message has."""
        life = self._life
        root, first, sizes, life.first = life.primary, life.first, life.sizes, life.first + 100_000
        return lambda: hosts.primary(root, port, notes, first, on_lost=on_lost, sizes=sizes)

    def _judge(self) -> None:
        """Compare both logs, and look for what was said to be replicated."""
        life = self._life
        life.replicated |= judge.noted(life.notes) | judge.noted(life.old_notes)
        self.counts["replicated messages"] = max(self.counts["replicated messages"], len(life.replicated))
        self.problems += judge.pair(life.primary, life.replica, life.replicated)

    # --- changes of roles -----------------------------------------------------------------------------

    def _swap(self, is_twice: bool) -> None:
        """Promote the replica; the old primary, which sends, is told, and follows."""
        life = self._life
        if not read_lineage(life.replica).epochs:
            return  # it has never met its primary, so a promotion would begin a store of its own
        for _ in range(2 if is_twice else 1):
            self._until_done(partial(self._promote, life.replica))
            self.counts["promotions"] += 1
            self.problems += judge.has_all(life.replica, life.replicated)
            old = Host(self._sending(self._wire_port, life.old_notes, OnLost.DEGRADE))
            new = Host(partial(hosts.quiet_primary, life.replica, self._port))
            if old.wait(20) != hosts.FENCED:
                self.problems.append(f"the old primary was not fenced: it ended with {old.status}")
            old.kill()
            self._check_fenced(life.primary)
            self._until_done(partial(self._rejoin, life.primary))
            self.counts["rejoins"] += 1
            self._level(life.primary)
            new.kill()
            life.primary, life.replica = life.replica, life.primary
            self.problems += judge.pair(life.primary, life.replica, life.replicated, is_level=True)

    def _promote(self, root: Path) -> None:
        """Promote, in a process that may be killed at a step; the old primary is to be told at the proxy's port."""
        note_replaced(root, f"127.0.0.1:{self._wire_port}")
        if read_mark(root) is not None:
            promotion.status(root)
            replica.promote(root)

    def _rejoin(self, root: Path) -> None:
        mark = read_mark(root)
        if mark is None or mark.primary != f"127.0.0.1:{self._port}":
            rejoin(root, look(root, f"127.0.0.1:{self._port}"), NO_BROKER)
        with open_store(root, housekeeping=False):
            pass

    def _until_done(self, work: Callable[[], None]) -> None:
        """Do something in processes that die at a step, until one of them does it to its end."""
        blow = _blow(self._chance, _OF_A_SWAP, 1) if self._chance.random() < 0.5 else None
        for number in range(3):
            host = Host(work, blow if number == 0 else None)
            if host.wait() == 0:
                return
            self.counts["kills during a change"] += 1
            if wrong := hosts.errors_are(host, set()):
                self.problems.append(f"a change of roles: {wrong}")
        self.problems.append("a change of roles was not done in three times")

    def _check_fenced(self, root: Path) -> None:
        """See that a fenced store takes nothing, in a process of its own and after a restart."""
        with open_store(root, housekeeping=False) as store:
            end = store.state.published_to
            try:
                appender_of(store).append(Message(TOPIC, b"no"))
                self.problems.append("a fenced primary took a message")
            except QueueError:
                self.counts["refused by fences"] += 1
            if store.state.published_to != end:
                self.problems.append("the log of a fenced primary grew")

    def _level(self, root: Path) -> None:
        """Let a store follow until it has everything."""
        following = Host(lambda: hosts.follower(root, self._port))
        if not judge.becomes_level(root, self._life.replica):
            self.problems.append("the old primary does not catch up")
        following.kill()

    # --- power cuts -----------------------------------------------------------------------------------

    def _lose_power(self) -> None:
        """Take from the primary what it had not flushed; the replica gives back what it has."""
        life = self._life
        life.replicated |= judge.noted(life.notes)
        with open_store(life.replica, housekeeping=False) as store:
            of_replica = log_bytes(store)
        if not is_followed(life.primary) or not judge.lose_power(life.primary, self._chance):
            return
        self.counts["power cuts"] += 1
        epoch = read_lineage(life.primary).newest
        try:
            open_store(life.primary).close()
            self.problems.append("a primary that lost power was opened before its replica was asked")
        except StoreUnsettled:
            pass
        if not self._take_back():
            return
        with open_store(life.primary, housekeeping=False) as store:
            if not log_bytes(store).startswith(of_replica):
                self.problems.append("a power cut took what was replicated")
        self.problems += judge.pair(life.primary, life.replica, life.replicated)
        if read_lineage(life.primary).newest != epoch + 1:
            self.problems.append("a power cut began no epoch, or more than one")

    def _take_back(self) -> bool:
        """Let the primary ask its replica; return whether it is settled then."""
        life = self._life
        following = Host(lambda: hosts.follower(life.replica, self._port))
        taking_back = Host(lambda: settle(life.primary, self._port))
        status = taking_back.wait()
        if status != 0:
            self.problems.append(f"nothing was taken back: {status}; the follower: {following.status}")
        following.kill()
        taking_back.kill()
        return status == 0


def _blow(chance: random.Random, points: list[CrashPoint], most: int = 30) -> Blow:
    return chance.choice(points), chance.randrange(most)


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Do so many rounds."""
    with kept_port() as port, kept_port() as wire_port:
        rig = Replication(seed, scratch, port, wire_port)
        rig.run(rounds)
    return Result(CLAIM, dict(sorted(rig.counts.items())), rig.problems)


RIG = Rig("replication", 2_000, run)
