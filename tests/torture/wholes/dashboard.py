"""A dashboard with twenty clients for an hour, while workers are killed and dead letters gather: its memory is flat."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import re
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from rmqclient.metrics import Sampler
from tests.dashboard.shop import Shop, open_shop
from tests.torture.result import Result, Rig

CLAIM = (
    "With twenty clients that get live updates and walk over all pages, while workers are killed and dead letters "
    "gather, every request is answered and the memory of the dashboard's process does not grow."
)
CLIENTS = 20
ROUND_S = 60.0
WARM_ROUNDS = 15
"""The samples of the charts fill ten minutes; code and templates are loaded at first use."""
_MOST_GROWTH = 0.05
_PAUSE_S = 5.0
"""Between two pages of one client."""
_TIMEOUT_S = 60.0
_PATHS = (
    "/",
    "/topics",
    "/topics/orders",
    "/groups",
    "/groups/billing",
    "/groups/billing/seek?topic=orders&to=earliest",
    "/messages?topic=orders&where=body.total+%3E+%60200%60",
    "/messages?topic=orders&key=A-17",
    "/dead-letters?group=billing",
    "/workers",
    "/schedules",
    "/transactions",
    "/history",
)


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Keep everything under load for so many minutes; kill a worker in each."""
    result, chosen = Result(CLAIM), random.Random(seed)
    memory: list[Memory] = []
    with open_shop(scratch) as shop, Sampler(shop.store) as sampler:
        clients = [Client(shop, random.Random(seed + number)) for number in range(CLIENTS)]
        for _ in range(rounds):
            kill_after_s = chosen.random() * ROUND_S
            time.sleep(kill_after_s)
            pids = [worker.pid for worker in sampler.sample().workers if worker.pid]
            os.kill(chosen.choice(pids), signal.SIGKILL)
            time.sleep(ROUND_S - kill_after_s)
            memory.append(memory_of(shop.dashboard.pid))
        sample = sampler.sample()
        for client in clients:
            client.stop()
    seen = sum((client.seen for client in clients), Counter[str]())
    result.problems += [problem for client in clients for problem in client.problems]
    result.figures |= {
        "clients": CLIENTS,
        "workers killed": rounds,
        "dead letters": sum(each.dead_lettered for each in sample.group_queues),
        "pages": seen["pages"],
        "live updates": seen["updates"],
        **_figures(memory),
    }
    if (growth := growth_of(memory)) is not None and growth > _MOST_GROWTH:
        result.problems.append(f"the memory has grown by {growth:.1%}")
    return result


class Memory(NamedTuple):
    """Memory of a process, in MiB."""

    own: float
    """What is no part of a file."""
    resident: float
    """With the pages of the store's files that it has looked at."""


def memory_of(pid: int) -> Memory:
    """Return the memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    kib = {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", status, re.MULTILINE)}
    return Memory(kib["RssAnon"] / 1024, kib["VmRSS"] / 1024)


def growth_of(memory: list[Memory]) -> float | None:
    """Return by which part the own memory grew, from the first third behind the warm-up to the last; None if short."""
    settled = [each.own for each in memory[WARM_ROUNDS:]]
    third = len(settled) // 3
    if third == 0:
        return None
    return statistics.median(settled[-third:]) / statistics.median(settled[:third]) - 1


class Client:
    """One client with two connections: one hears the live updates, one walks over the pages, until :meth:`stop`."""

    def __init__(self, shop: Shop, chosen: random.Random) -> None:
        self.seen = Counter[str]()
        """``pages`` and ``updates``; complete after :meth:`stop`."""
        self.problems: list[str] = []
        self._shop = shop
        self._chosen = chosen
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._begin, args=(each,)) for each in (self._walk, self._hear)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both connections."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _begin(self, connection: Callable[[], None]) -> None:
        try:
            connection()
        except (OSError, http.client.HTTPException) as error:
            self.problems.append(f"a connection failed: {type(error).__name__}: {error}")

    def _walk(self) -> None:
        while not self._ending.wait(self._chosen.random() * 2 * _PAUSE_S):
            path = self._chosen.choice(_PATHS)
            with contextlib.closing(self._get(path)) as answer:
                body = answer.read()
            self.seen["pages"] += 1
            if answer.status != 200 or not body:
                self.problems.append(f"{path}: {answer.status} {body[:200]!r}")

    def _hear(self) -> None:
        with contextlib.closing(self._get("/live")) as events:
            if events.status != 200:
                self.problems.append(f"/live: {events.status}")
            while not self._ending.is_set() and (line := events.readline()):
                self.seen["updates"] += line.startswith(b"data: ")
            if not self._ending.is_set():
                self.problems.append("the live updates have ended")

    def _get(self, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(urlsplit(self._shop.base).netloc, timeout=_TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self._shop.token}", "Connection": "close"}
        connection.request("GET", path, headers=headers)
        return connection.getresponse()


def _figures(memory: list[Memory]) -> dict[str, float | str]:
    figures: dict[str, float | str] = {
        "own memory after a minute in MiB": round(memory[0].own, 1),
        "own memory at the end in MiB": round(memory[-1].own, 1),
        "resident at the end in MiB": round(memory[-1].resident, 1),
    }
    if (growth := growth_of(memory)) is not None:
        figures["own memory after the warm-up in MiB"] = round(memory[WARM_ROUNDS].own, 1)
        figures["growth behind the warm-up"] = f"{growth:.1%}"
    return figures


RIG = Rig("dashboard", 60, run)
