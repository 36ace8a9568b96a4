"""Random ``kill -9`` of several processes that send the same messages by key at once, and hosts that start again."""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rmqclient import Message, Producer
from rmqclient.store import MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from tests.crash.processes.nursery import Nursery, notes_of
from tests.crash.processes.order import Order
from tests.support.oracle import reference
from tests.support.stores import QUEUE, SMALL, TOPIC, abandon, appender_of, body_of, number_of
from tests.torture.result import Result, Rig

CLAIM = "Of any number of senders with one key one stores its message, whoever is killed where, and all are told of it."

_SENDERS = 3
_POINTS = [
    *(point for point in CrashPoint if point < CrashPoint.PROGRESS_ADVANCED),
    *(CrashPoint.ONCE_NOT_FOUND, CrashPoint.INDEX_SLOT_WRITTEN, CrashPoint.INDEX_FILE_FULL, CrashPoint.INDEX_WRITTEN),
    *(CrashPoint.FILE_ALLOCATED, CrashPoint.REPAIR_STARTED, CrashPoint.REPAIR_ZEROED, CrashPoint.REPAIR_ENTRY_WRITTEN),
]
_MOST_LINES = 400


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Do so many rounds, each with a new store."""
    chosen = random.Random(seed)
    counted: Counter[str] = Counter()
    result = Result(CLAIM)
    with ExitStack() as open_while_running:
        nurseries = [open_while_running.enter_context(Nursery()) for _ in range(_SENDERS)]
        for number in range(rounds):
            directory = scratch / f"round {number}"
            directory.mkdir()
            for problem in _round(chosen, nurseries, directory, counted):
                result.problems.append(f"round {number} of seed {seed}: {problem}")
            shutil.rmtree(directory)
    result.figures = {"rounds": rounds, **counted}
    return result


def _round(chosen: random.Random, nurseries: Sequence[Nursery], directory: Path, counted: Counter[str]) -> list[str]:
    root, keys = directory / "store", chosen.randrange(2, 60)
    size = chosen.choice((60, 600, 1_900))
    store = open_store(root, SMALL, housekeeping=False)
    appender_of(store).append(Message(TOPIC, body_of(keys)))  # makes the topic, with one queue
    told: list[tuple[int, int, int]] = []
    for life in range(chosen.randrange(1, 5)):
        orders = [_order(chosen, root, directory / f"notes {life} {name}", keys, size) for name in range(_SENDERS)]
        with ThreadPoolExecutor(_SENDERS) as threads:
            ends = list(threads.map(Nursery.run, nurseries, orders))
        if {*ends} - {0, -signal.SIGKILL}:
            return [f"children ended with {ends}"]
        counted["kills"] += sum(end != 0 for end in ends)
        for order in orders:
            told += [_as_told(line) for line in notes_of(order)]
        end = chosen.randrange(4)
        if end < 2:  # all die; the host starts again, too
            abandon(store)
            if end == 1:
                (root / "shared").unlink()
            store = open_store(root, SMALL, housekeeping=False)
            counted["openings after all were killed"] += 1
    with Producer(store) as producer:
        for number in range(keys):
            sent = producer.send_once(Message(TOPIC, body_of(number, size)), f"key-{number}")
            told.append((number, int(sent.is_duplicate), sent.commit_log_offset))
    problems = _ending(store, keys, told)
    counted["keys"] += keys
    counted["sends that returned"] += len(told)
    store.close()
    return problems + [str(problem) for problem in reference.check_store(root)]


def _order(chosen: random.Random, root: Path, notes: Path, keys: int, size: int) -> Order:
    order = Order(scenario="send_once", root=str(root), notes=str(notes), rounds=keys, body_bytes=size)
    match chosen.randrange(4):
        case 0:
            return order
        case 1:
            return replace(order, kill_at_line=chosen.randrange(1, _MOST_LINES))
        case _:
            return replace(order, point=chosen.choice(_POINTS).name, survive=chosen.randrange(20))


def _as_told(line: str) -> tuple[int, int, int]:
    number, is_duplicate, place = map(int, line.split())
    return number, is_duplicate, place


def _ending(store: MessageStore, keys: int, told: list[tuple[int, int, int]]) -> list[str]:
    """Say what is wrong with what is stored, and with what senders were told."""
    problems = []
    messages = [store.messages.at(QUEUE, number) for number in range(1, store.topics.max_offset(QUEUE))]
    stored = {number_of(message.body): message.commit_log_offset for message in messages}
    if sorted(number_of(message.body) for message in messages) != list(range(keys)):
        problems.append(f"stored: {sorted(number_of(message.body) for message in messages)} of {keys}")
    wrong = [(number, place) for number, _, place in told if stored.get(number) != place]
    if wrong:
        problems.append(f"senders were told of other places: {wrong}")
    firsts = Counter(number for number, is_duplicate, _ in told if not is_duplicate)
    if firsts and max(firsts.values()) > 1:
        problems.append(f"several senders were told that theirs is the first: {firsts.most_common(3)}")
    return problems


RIG = Rig("once", 1_000, run)
