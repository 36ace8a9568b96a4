"""Updates of a compact topic, while senders, passes and retention are killed, and hosts start again.

One child sends and is killed in an append, again and again. Beside it one compacts and removes commit log files, as on
a nearly full disk; it is killed at a step of that, or at a random moment. When nobody lives any more the runtime file
may be lost, as at a start of the host. A reader goes on where it was, over whatever was compacted meanwhile, and at the
end one begins at the oldest messages: what they know of each key must be what a dictionary says that was made from the
same input.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from rmqclient import PullConsumer, PullStatus
from rmqclient.store import MessageQueue, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.files.compacted_file import open_compacted
from rmqclient.store.inspect.verify import verify
from tests.torture.kills.child_compaction import BLOCK, QUEUES, TOPIC, Order, queue_of, updates
from tests.torture.result import Result, Rig

CLAIM = (
    "Whichever process is killed, and wherever, a compact topic that is read from its oldest message, or on from "
    "anywhere, gives the latest value of every key, with its queue offset, and no deleted key."
)

_KEYS_PER_BLOCK = 10
_POINTS = [point for point in CrashPoint if point.name.startswith(("COMPACTION_", "RETENTION_"))]
_APPEND_POINTS = [
    point
    for point in CrashPoint
    if CrashPoint.APPEND_LOCKED <= point <= CrashPoint.APPEND_FINISHED and point is not CrashPoint.BLANK_WRITTEN
]
_SENDER_KILLS = 40
_LONGEST_LIFE_S = 600
_LONGEST_WAIT_S = 0.5
_LONGEST_END_S = 900
_CHECKS = 4


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Make ``rounds`` thousand updates of a hundredth as many keys."""
    return _Run(seed, rounds, scratch / "store").run()


class _Run:
    def __init__(self, seed: int, blocks: int, root: Path) -> None:
        self._chance = random.Random(seed)
        self._root = root
        size = max(1 << 17, min(1 << 24, blocks << 12))
        self._order = Order(
            role="send",
            root=str(root),
            seed=seed,
            blocks=blocks,
            keys=blocks * _KEYS_PER_BLOCK,
            log_file_bytes=size,
            hints=str(root.with_name("hints")),
        )
        self._counted: Counter[str] = Counter()
        self._result = Result(CLAIM)
        self._input = _Input(self._order)
        self._reader = _Reader()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._check_at = blocks * BLOCK // _CHECKS
        self._sender_kills = min(_SENDER_KILLS, 2 + blocks // 30)

    def run(self) -> Result:
        try:
            self._live()
        finally:
            for child in self._children.values():
                child.kill()
                child.communicate()
        self._clean_up()
        self._check("at the end", fresh=True)
        return self._result

    def _live(self) -> None:
        """Until a sender has sent all."""
        while not self._result.problems:
            for role in ("clean", "send"):
                if role not in self._children:
                    self._start(role)
            self._children["send"].wait(_LONGEST_LIFE_S)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._children["clean"].wait(self._chance.uniform(0, _LONGEST_WAIT_S))
            if self._end(["clean"] if self._chance.randrange(3) else []):
                return
            if not self._children:
                self._counted["openings after all were killed"] += 1
                if self._chance.randrange(2):
                    (self._root / "shared").unlink(missing_ok=True)
                self._check_now_and_then()

    def _start(self, role: str) -> None:
        order = replace(self._order, role=role)
        if role == "send":
            survive = self._chance.randrange(2 * QUEUES * self._order.blocks // self._sender_kills)
            order = replace(order, point=self._chance.choice(_APPEND_POINTS).name, survive=survive)
        elif self._chance.randrange(3):
            order = replace(order, point=self._chance.choice(_POINTS).name, survive=self._chance.randrange(12))
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.kills.child_compaction", order.text()], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()  # that it is ready, or that it was killed before
        self._children[role] = child

    def _end(self, victims: list[str]) -> bool:
        """Kill some, and count those that have died at a crash point; True when a sender was done."""
        for role, child in list(self._children.items()):
            was_alive = child.poll() is None
            if was_alive and role not in victims:
                continue
            at_a_step = role == "clean" and not was_alive
            child.kill()
            child.communicate()
            del self._children[role]
            if child.returncode > 0:
                self._result.problems.append(f"a child that had to {role} ended with {child.returncode}")
            elif child.returncode == 0:
                return True
            self._counted[f"kills of {'senders' if role == 'send' else 'cleaners'}"] += 1
            self._counted["cleaners killed at a step of a pass or of retention"] += at_a_step
        return False

    def _clean_up(self) -> None:
        order = replace(self._order, role="clean", until_done=True)
        done = subprocess.run(
            [sys.executable, "-m", "tests.torture.kills.child_compaction", order.text()],
            stdout=subprocess.PIPE,
            timeout=_LONGEST_END_S,
            check=False,
        )
        if done.returncode:
            self._result.problems.append(f"the last cleaner ended with {done.returncode}")

    def _check_now_and_then(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for queue_id in range(QUEUES):
                file = open_compacted(self._root, MessageQueue(TOPIC, queue_id))
                if file is not None and file.compacted_to * QUEUES >= self._check_at:
                    self._check_at += self._order.blocks * BLOCK // _CHECKS
                    self._clean_up()
                    self._check("on the way", fresh=bool(self._chance.randrange(2)))
                    return

    def _check(self, when: str, *, fresh: bool) -> None:
        """Read on, and compare; with ``fresh`` a reader that begins at the oldest messages does so, too."""
        began = time.monotonic()
        with open_store(self._root, self._order.config, housekeeping=False) as store:
            queues = store.topics.queues(TOPIC)
            ends = [store.topics.max_offset(queue) for queue in queues]
            expected = self._input.after(ends)
            for reader in (self._reader, _Reader())[: 1 + fresh]:
                reader.read_on(PullConsumer(store, group="readers"), queues)
                self._counted["messages read"] += reader.count
                if reader.values != expected:
                    wrong = {key for key, _ in reader.values.items() ^ expected.items()}
                    self._result.problems.append(
                        f"{when}: of {len(expected)} keys {len(wrong)} have another value, such as {sorted(wrong)[:3]}"
                    )
            figures = {"updates": sum(ends), "keys": self._order.keys, "keys with a value": len(expected)}
            sent = store.state.published_to
        self._result.problems += [str(problem) for problem in verify(self._root)]
        self._counted["checks"] += 1
        self._result.figures = {
            **figures,
            **self._counted,
            "MB sent": round(sent / 1e6),
            "MB on the disk": round(sum(file.stat().st_blocks * 512 for file in self._root.rglob("*")) / 1e6),
            "MB of compacted files": round(sum(file.stat().st_size for file in self._root.rglob("compacted")) / 1e6),
            "s of the last check": round(time.monotonic() - began, 1),
        }


class _Input:
    """The same updates, in a dictionary; it goes only forward."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._block = 0
        self._values: dict[str, bytes] = {}
        self._waiting: list[list[tuple[str, bytes]]] = [[] for _ in range(QUEUES)]
        self._ends = [0] * QUEUES

    def after(self, ends: list[int]) -> dict[str, bytes]:
        """Return the values of all keys after so many updates of each queue."""
        while self._block < self._order.blocks and any(
            end > done + len(waiting) for end, done, waiting in zip(ends, self._ends, self._waiting, strict=True)
        ):
            for key, value in updates(self._order, self._block):
                self._waiting[queue_of(key)].append((key, value))
            self._block += 1
        for number, end in enumerate(ends):
            count = end - self._ends[number]
            _apply(self._values, self._waiting[number][:count])
            del self._waiting[number][:count]
            self._ends[number] = end
        return self._values


class _Reader:
    """Reads a topic on, from its oldest message, and knows the value of each key."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.count = 0
        self._offsets: dict[MessageQueue, int] = {}

    def read_on(self, consumer: PullConsumer, queues: list[MessageQueue]) -> None:
        """Read all there is."""
        for queue in queues:
            offset = max(self._offsets.get(queue, 0), consumer.min_offset(queue))
            while (result := consumer.pull(queue, offset, limit=1_024)).status is not PullStatus.NO_NEW_MESSAGE:
                _apply(self.values, [(message.keys[0], message.body) for message in result.messages])
                self.count += len(result.messages)
                offset = result.next_offset
            self._offsets[queue] = offset


def _apply(values: dict[str, bytes], changes: list[tuple[str, bytes]]) -> None:
    for key, value in changes:
        if value:
            values[key] = value
        else:
            values.pop(key, None)


RIG = Rig("compaction", 10_000, run)
