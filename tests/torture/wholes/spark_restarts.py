"""A streaming query of Spark whose driver is killed again and again, while senders append and consumers work.

The query goes from the store to Parquet. A round starts its driver and kills every process of it, at a random moment
or at one of the steps by which Spark commits a batch. At the end the query finishes with what is there, and the files
that Spark's sink log names are compared with the commit log, which another reader reads.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet

from rmqclient.errors import SparkUnavailable
from rmqclient.sending.producer import Producer
from rmqclient.spark.java import java_home
from rmqclient.spark.session import check_installed
from rmqclient.store import Message
from tests.crash.processes.child_campaign import CONFIG, TOPIC, consume, send
from tests.support.oracle import reference
from tests.torture.result import Result, Rig

CLAIM = (
    "However often and whenever the driver of a streaming query is killed while producers append and workers consume, "
    "its Parquet holds each message exactly once."
)
SENDERS = 2
BURST_INTERVAL_S = 1.0
MESSAGES_A_BATCH = 400
MESSAGES_IN_THE_END = 50_000
STEP_S = 120.0
STEPS = {"planned": "checkpoint/offsets", "written": "sink/_spark_metadata", "committed": "checkpoint/commits"}
"""How Spark commits a batch: its end, what the sink has of it, and that it is done. A file for each, by its number."""

TOP = Path(__file__).parents[3]
Place = tuple[str, int, int, bytes]
"""Topic, queue id, queue offset and body of a message."""


@dataclass(slots=True)
class Figures:
    """What was done."""

    moments: Counter[str] = field(default_factory=Counter)
    planned: int = 0
    """Kills between the plan of a batch and its last step: it was run again."""
    written: int = 0
    """Kills after the sink had a batch and before Spark knew it: it was run again for nothing."""


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Kill a driver so many times."""
    try:
        check_installed()
        java_home()
    except SparkUnavailable as error:
        return Result(CLAIM, skipped=str(error))
    chance, figures = random.Random(seed), Figures()
    root, directory = scratch / "store", scratch / "query"
    (directory / "tmp").mkdir(parents=True)
    with others(root, scratch, chance):
        for number in range(rounds):
            with Producer(root, config=CONFIG) as producer:
                topic = f"extra-{number // 5}"
                producer.send_batch([Message(topic, f"{topic} {number} {each}") for each in range(20)])
            _round(root, directory, chance, figures)
    ended = _drive(root, directory, "finish", MESSAGES_IN_THE_END)
    problems = [] if ended.wait() == 0 else [f"the last run of the query ended with {ended.returncode}"]
    return _judged(root, directory, figures, problems)


# --- processes ------------------------------------------------------------------------------------


@contextmanager
def others(root: Path, scratch: Path, chance: random.Random) -> Iterator[None]:
    """Let senders append a burst now and then, and a consumer handle what they send."""
    bursts = []
    with ExitStack() as stack:
        for number in range(SENDERS + 1):
            ready, say_ready = os.pipe()
            wait_for_burst, burst = os.pipe()
            life_seed = chance.getrandbits(32)
            pid = os.fork()
            if pid == 0:
                try:
                    os.close(burst)
                    if number < SENDERS:
                        send(root, scratch / f"sender-{number}", number, life_seed, say_ready, wait_for_burst)
                    else:
                        consume(root, scratch / "consumer", say_ready)
                finally:
                    os._exit(1)
            os.close(say_ready)
            os.close(wait_for_burst)
            assert os.read(ready, 1) == b"r"
            stack.callback(os.close, ready)
            stack.callback(os.waitpid, pid, 0)
            if number < SENDERS:  # ends by itself, when no burst will come: what it sends then is whole
                bursts.append(burst)
            else:
                stack.callback(os.kill, pid, signal.SIGKILL)
                stack.callback(os.close, burst)
        is_over = threading.Event()
        asking = threading.Thread(target=_ask_for_bursts, args=(bursts, is_over))
        asking.start()
        try:
            yield
        finally:
            is_over.set()
            asking.join()
            for burst in bursts:
                os.close(burst)


def _ask_for_bursts(bursts: list[int], is_over: threading.Event) -> None:
    while not is_over.wait(BURST_INTERVAL_S):
        for burst in bursts:
            os.write(burst, b"b")


def _drive(root: Path, directory: Path, mode: str, limit: int) -> subprocess.Popen[bytes]:
    """Start a driver, with all that it starts itself in a session of its own."""
    command = [
        sys.executable,
        "-m",
        "tests.torture.wholes.child_spark_restarts",
        str(root),
        str(directory),
        mode,
        str(limit),
    ]
    environment = os.environ | {"TMPDIR": str(directory / "tmp"), "PYTHONPATH": str(TOP)}
    with (directory / "output").open("ab") as output:
        return subprocess.Popen(command, cwd=TOP, env=environment, stdout=output, stderr=output, start_new_session=True)


def _kill(driver: subprocess.Popen[bytes]) -> None:
    """Kill a driver, its Java and their Python workers, which are in process groups of their own, all at once."""
    while alive := [pid for pid in _processes() if _is_alive(pid, driver.pid)]:
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    driver.wait()


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _is_alive(pid: int, session: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status[0] != "Z" and int(status[3]) == session


# --- a round --------------------------------------------------------------------------------------


def _round(root: Path, directory: Path, chance: random.Random, figures: Figures) -> None:
    before = {step: last_batch(directory, step) for step in STEPS}
    driver = _drive(root, directory, "run", chance.choice((MESSAGES_A_BATCH // 4, MESSAGES_A_BATCH, 5_000)))
    try:
        moment = chance.choice(("starting", "any", "any", *STEPS, *STEPS))
        if moment == "starting":
            time.sleep(chance.uniform(0, 8))  # the moment of the kill, all of these
        else:
            step = "committed" if moment == "any" else moment
            _wait_for(driver, directory, step, before[step] + chance.choice((1, 1, 2)))
            longest_s = 1.5 if moment == "any" else chance.choice((0, 0, 0.003, 0.03))
            time.sleep(chance.uniform(0, longest_s))
    finally:
        ended = driver.poll()
        _kill(driver)
    if ended is not None:
        output = (directory / "output").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"the driver ended by itself, with {ended}:\n{output[-3000:]}")
    found = {step: last_batch(directory, step) for step in STEPS}
    figures.moments[moment] += 1
    figures.planned += found["planned"] > found["committed"]
    figures.written += found["written"] > found["committed"]


def last_batch(directory: Path, step: str) -> int:
    """Return the number of the last batch that has done a step; -1 for none."""
    path = directory / STEPS[step]
    names = [each.name.removesuffix(".compact") for each in path.iterdir()] if path.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _wait_for(driver: subprocess.Popen[bytes], directory: Path, step: str, batch: int) -> None:
    deadline = time.monotonic() + STEP_S
    paths = [directory / STEPS[step] / f"{batch}{end}" for end in ("", ".compact")]
    while not any(path.exists() for path in paths) and driver.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)


# --- the judge ------------------------------------------------------------------------------------


def _judged(root: Path, directory: Path, figures: Figures, problems: list[str]) -> Result:
    stored = Counter(places_of(root))
    named = sink_files(directory / "sink")
    found = Counter(place for path in named for place in rows_of(path))
    counts: dict[str, int | float | str] = {
        "restarts": figures.moments.total(),
        **{f"killed {_shown(moment)}": count for moment, count in sorted(figures.moments.items())},
        "batches cut short": figures.planned,
        "batches in the sink and unknown to Spark": figures.written,
        "batches": last_batch(directory, "committed") + 1,
        "files": len(named),
        "files of killed batches": len([path for path in (directory / "sink").glob("*.parquet") if path not in named]),
        "messages": stored.total(),
        "topics": len({place[0] for place in stored}),
        "rows": found.total(),
        "lost": len(stored - found),
        "doubled": sum(count - 1 for count in found.values()),
        "invented or damaged": len(set(found) - set(stored)),
    }
    wrong = ("lost", "doubled", "invented or damaged")
    problems += [f"{name}: {counts[name]}" for name in wrong if counts[name]]
    problems += reference.check_store(root)
    return Result(CLAIM, counts, problems)


def _shown(moment: str) -> str:
    steps = {"planned": "when a batch was planned", "written": "when the sink had it", "committed": "when it was done"}
    return {"starting": "while it started", "any": "at any moment", **steps}[moment]


def places_of(root: Path) -> list[Place]:
    """Return every message that the query was to read, by a reader that shares nothing with the store's."""
    return [
        (record.topic, record.queue_id, record.queue_offset, record.body)
        for _, record in reference.read_commit_log(root)
        if record.topic == TOPIC or record.topic.startswith("extra-")
    ]


def sink_files(sink: Path) -> set[Path]:
    """Return the files that Spark's sink has committed, by its log: ``10.compact`` replaces all before."""
    log = sink / "_spark_metadata"
    batches = {int(path.name.partition(".")[0]): path for path in log.iterdir() if path.name[0].isdigit()}
    compact = max((number for number, path in batches.items() if path.suffix == ".compact"), default=0)
    lines = [
        json.loads(line)
        for number in sorted(batches)
        if number >= compact
        for line in batches[number].read_text(encoding="utf-8").splitlines()[1:]  # the first one is the version
    ]
    assert all(line["action"] == "add" for line in lines)
    return {Path(unquote(urlsplit(line["path"]).path)) for line in lines}


def rows_of(path: Path) -> list[Place]:
    """Return the rows of a Parquet file."""
    table = pyarrow.parquet.read_table(path, columns=["topic", "partition", "offset", "value"], partitioning=None)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


RIG = Rig("spark-restarts", 50, run)
