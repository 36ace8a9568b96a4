"""A store whose flush fails: what the process sees in which that happens, and what all others do.

``strace`` makes the so-many-th ``fdatasync`` of a real process fail with EIO, as a disk would. That process, the
*victim*, goes on to send after the failure, as a stubborn application might; another one, the *bystander*, has the same
store open all the while. :func:`inject` runs both and judges.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rmqclient.sending.producer import Producer
from rmqclient.store import Durability, Message, MessageQueue, MessageStore, StoreConfig, open_store
from rmqclient.store.config import FlushConfig
from rmqclient.store.errors import DiskFailed, StorePoisoned
from rmqclient.store.recovery.recovery import ABORT
from tests.support.oracle import reference
from tests.support.stores import grant_of

ROOT = Path(__file__).parents[3]

TOPIC = "orders"
QUEUE = MessageQueue(TOPIC, 0)
SENDS = 12
STUBBORN = 5
"""Sends of each kind that are tried after the failure."""

CONFIG = StoreConfig(
    commit_log_file_bytes=64 << 10,
    max_body_bytes=8 << 10,
    consume_queue_file_entries=64,
    index_slots=16,
    index_entries=64,
    default_queue_count=1,
    flush=FlushConfig(interval_ms=5, thorough_interval_ms=10),
)
SYNC = replace(CONFIG, durability=Durability.SYNC)


def why_not() -> str:
    """Say why no system call can be made to fail here; empty when one can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    return f"strace cannot trace here: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass(slots=True)
class Outcome:
    """What became of one run."""

    injected: int = 0
    """How many calls failed; 0 when the process makes fewer of them."""
    acknowledged_before: int = 0
    acknowledged_after: int = 0
    refused: int = 0
    """Sends after the failure that raised StorePoisoned."""
    problems: list[str] = field(default_factory=list)


def inject(root: Path, number: int, *, durability: Durability, call: str = "fdatasync", alone: bool = False) -> Outcome:
    """Let the ``number``-th ``call`` of each thread of a victim fail, and judge the store in ``root``, a new one.

    With ``alone`` no bystander has the store open, so that the victim recovers it in the beginning and closes it in
    the end.
    """
    outcome = Outcome()
    bystander = None if alone else open_store(root, CONFIG, housekeeping=False)
    if bystander is not None:
        _producer_of(bystander, CONFIG).create_topic(TOPIC, 1)
    sent: list[bytes] = []
    try:
        said = _run_victim(root, number, durability, call, outcome, lambda: _send_beside(bystander, sent, outcome))
        sent += [body_of(line.split()[1]) for line in said if line.startswith("o ")]
        _judge_victim(said, outcome)
        if bystander is not None:
            _judge_bystander(bystander, sent, outcome)
    finally:
        if bystander is not None:
            bystander.close()
    _judge_store(root, sent, outcome)
    return outcome


def _run_victim(
    root: Path, number: int, durability: Durability, call: str, outcome: Outcome, meanwhile: Callable[[], None]
) -> list[str]:
    trace, evidence = root.with_name(f"{root.name}.trace"), root.with_name(f"{root.name}.evidence")
    # The interpreter itself: a shell script in front of it would be what is traced.
    victim = [sys.executable, "-m", "tests.power.disks.failing", str(root), str(evidence), durability.name]
    fault = ["-e", f"trace={call}", "-e", f"inject={call}:error=EIO:when={number}"]
    traced = ["strace", "--seccomp-bpf", "-f", "-qq", "-o", str(trace), *fault, *victim]
    with subprocess.Popen(traced, cwd=ROOT) as process:
        while process.poll() is None:
            meanwhile()
            time.sleep(0.005)  # a pace of sending
    if process.returncode:
        outcome.problems.append(f"the victim ended with status {process.returncode}")
    outcome.injected = trace.read_text(encoding="utf-8").count("(INJECTED)")
    return evidence.read_text(encoding="utf-8").splitlines()


def _send_beside(bystander: MessageStore | None, sent: list[bytes], outcome: Outcome) -> None:
    """Send one message while the victim lives: it must be refused if the store was poisoned before."""
    if bystander is None:
        return
    poisoned = bystander.state.poisoned
    body = body_of(f"beside-{len(sent)}")
    try:
        _producer_of(bystander, CONFIG).send(Message(TOPIC, body))
    except StorePoisoned as error:
        _check_told(error, "the bystander", outcome)
    else:
        sent.append(body)
        if poisoned:
            outcome.acknowledged_after += 1


def _judge_victim(said: list[str], outcome: Outcome) -> None:
    failed = poisoned = False
    for line in said:
        kind, _, rest = line.partition(" ")
        if kind == "o" and failed:
            outcome.acknowledged_after += 1
        elif kind == "o":
            outcome.acknowledged_before += 1
        elif kind == "p":
            failed = True
            outcome.refused += 1
            _check_told(rest, "the victim", outcome)
        elif kind == "s":
            poisoned = rest == str(errno.EIO)
        else:
            outcome.problems.append(f"the victim got {rest}")
    if outcome.injected and not failed and not poisoned:
        outcome.problems.append("a flush failed, and nothing followed from it")
    if failed and not outcome.injected:
        outcome.problems.append("the victim was told of a failure that there was not")


def _judge_bystander(store: MessageStore, sent: list[bytes], outcome: Outcome) -> None:
    """Nothing more is taken, what is there is served, and the store says who must do what."""
    if not outcome.injected:
        return
    if store.state.poisoned != errno.EIO:
        outcome.problems.append(f"the store is poisoned with {store.state.poisoned}")
    be_stubborn([_producer_of(store, config) for config in (CONFIG, SYNC)], lambda line: _count_refused(line, outcome))
    grant = grant_of(store, queue=QUEUE)
    taken = grant.take(2_000, 2_000)
    if not {message.body for message in taken} >= set(sent):
        outcome.problems.append("the bystander does not get all that was sent before the failure")
    if taken and not grant.acknowledge_offsets([message.queue_offset for message in taken]):
        outcome.problems.append("an acknowledgement was refused")


def _count_refused(line: str, outcome: Outcome) -> None:
    if line.startswith("p "):
        outcome.refused += 1
        _check_told(line, "the bystander", outcome)
    else:
        outcome.acknowledged_after += 1


def _judge_store(root: Path, sent: list[bytes], outcome: Outcome) -> None:
    """It was not left as one that was closed, and the next opening has everything that was acknowledged."""
    if (root / ABORT).exists() != bool(outcome.injected):
        outcome.problems.append(
            "the store was left as if all were well" if outcome.injected else "abort is still there"
        )
    with open_store(root, CONFIG, housekeeping=False) as again:
        _producer_of(again, SYNC).send(Message(TOPIC, b"after"))
    bodies = [record.body for _, record in reference.read_commit_log(root)]
    lost = {*sent, b"after"} - set(bodies)
    outcome.problems += [f"{body[:20]!r} was acknowledged and is lost" for body in lost]
    outcome.problems += reference.check_store(root)
    if (root / ABORT).exists():
        outcome.problems.append("the store cannot be closed after it was recovered")


def _check_told(what: StorePoisoned | str, who: str, outcome: Outcome) -> None:
    text = str(what)
    if "rrno 5" not in text or "restart every process" not in text:
        outcome.problems.append(f"{who} is not told the errno and what to do: {text}")


def be_stubborn(producers: Sequence[Producer], say: Callable[[str], None]) -> None:
    """Go on sending after a failure, in each way that there is; say what becomes of it, as the victim does."""
    late = Message(TOPIC, b"too late")
    for producer in list(producers) * STUBBORN:
        for name, messages in (("one", [late]), ("batch", [late] * 3)):
            try:
                if len(messages) == 1:
                    producer.send(late)
                else:
                    producer.send_batch(messages)
            except (StorePoisoned, DiskFailed) as error:
                say(f"p {error}")
            else:
                say(f"o too-late-{name}")


def live(root: Path, say: Callable[[str], None], durability: Durability) -> None:
    """Be a victim: open the store, send, go on after a failure, and leave the store.

    It says ``o NAME`` when a send has returned, ``p TEXT`` for StorePoisoned, ``s ERRNO`` in the end.
    """
    store: MessageStore | None = None
    try:
        store = open_store(root, CONFIG)
        producer = _producer_of(store, replace(CONFIG, durability=durability))
        for number in range(SENDS):
            producer.send(Message(TOPIC, body_of(f"victim-{number}")))
            say(f"o victim-{number}")
        wait_for_the_housekeeper(store)
        producer.send(Message(TOPIC, body_of("victim-last")))
        say("o victim-last")
    except StorePoisoned as error:
        say(f"p {error}")
        if store is not None:
            be_stubborn([_producer_of(store, config) for config in (CONFIG, SYNC)], say)
    if store is not None:
        try:
            store.close()
        except (StorePoisoned, DiskFailed) as error:
            say(f"p {error}")
        say(f"s {store.state.poisoned}")


def wait_for_the_housekeeper(store: MessageStore) -> None:
    """Wait until all that was sent is flushed, or the flush has failed."""
    deadline = time.monotonic() + 20
    while store.state.flushed_to < store.state.published_to and not store.state.poisoned:
        if time.monotonic() > deadline:
            raise TimeoutError("the housekeeper does not flush")
        time.sleep(0.001)


def body_of(name: str) -> bytes:
    """Return a body so long that a dozen of them go to the next commit log file."""
    return name.encode().ljust(7_000, b".")


def _producer_of(store: MessageStore, config: StoreConfig) -> Producer:
    return Producer(store, config=config)


def main() -> None:
    """Be the victim, in a process of its own."""
    parser = argparse.ArgumentParser(description="Send to a store, and go on when it is poisoned.")
    parser.add_argument("root", type=Path)
    parser.add_argument("evidence", type=Path)
    parser.add_argument("durability", choices=[each.name for each in Durability])
    arguments = parser.parse_args()
    signal.alarm(60)
    descriptor = os.open(arguments.evidence, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    live(arguments.root, lambda line: _say(descriptor, line), Durability[arguments.durability])


def _say(descriptor: int, line: str) -> None:
    os.write(descriptor, f"{' '.join(line.split())}\n".encode())


if __name__ == "__main__":
    main()
