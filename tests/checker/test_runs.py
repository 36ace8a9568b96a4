"""Real runs: producers, workers, kills, stops, churn; and the same with faults planted into the product."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqclient.message import Message
from rmqclient.sending.producer import Producer
from tests.checker.plan import SEQUENCE_BITS, Mode, Plan, fresh_seed, known_modes
from tests.checker.rules.final_read import read_store
from tests.support.sweeps import share_of

ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("RMQ_TEST_SEED", fresh_seed()))

WITHOUT_FAULTS = ("--no-faults",)
MANY_STOPS = ("--messages", "400000", "--lease-ms", "250")

FINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "acknowledged before handled": ("acknowledged too early", WITHOUT_FAULTS),
    "a message dropped": ("lost in delivery", WITHOUT_FAULTS),
    "handled twice": ("repeated without a fault", WITHOUT_FAULTS),
    "a handler that ends its process": ("died", WITHOUT_FAULTS),
    "no fence": ("stale acknowledgement", MANY_STOPS),
    "an acknowledgement forgotten": ("stall", WITHOUT_FAULTS),
    "begun behind the committed offset": ("poll skip", ()),
    "the committed offset set back": ("repeated without a fault", ()),
    "queues taken from their owners": ("two owners", ()),
    "sent and not stored": ("lost from the store", WITHOUT_FAULTS),
    "sent twice": ("stored twice", WITHOUT_FAULTS),
    "sent something else": ("damaged", WITHOUT_FAULTS),
    "a descriptor kept": ("leak", WITHOUT_FAULTS),
}
"""What each planted fault must be found by, and in which run."""


def checked(*options: str) -> dict[str, Any]:
    """Run the checker in a process of its own; return its verdict. What is printed says where processes hang."""
    command = [sys.executable, "-m", "tests.checker", "--json", *options]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode in {0, 1}, run.stderr
    print(run.stderr)
    verdict: dict[str, Any] = json.loads(run.stdout)
    assert run.returncode == bool(verdict["counts"])
    return verdict


@pytest.mark.crash
@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G4")
@pytest.mark.guarantee("G6")
@pytest.mark.guarantee("G7")
@pytest.mark.guarantee("G8")
@pytest.mark.sweep
def test_kills_stops_and_churn_break_no_promise() -> None:
    print(f"seed {SEED}")
    verdict = checked("--messages", "200000", "--seed", str(SEED))
    assert verdict["counts"] == {}, "\n".join(verdict["examples"])
    assert verdict["figures"]["kills"] > 0


@pytest.mark.guarantee("G7")
def test_without_faults_every_message_is_handled_once() -> None:
    print(f"seed {SEED}")
    verdict = checked("--messages", str(share_of(100_000)), "--seed", str(SEED), "--no-faults")
    assert verdict["counts"] == {}, "\n".join(verdict["examples"])
    assert verdict["figures"]["extra deliveries"] == 0


@pytest.mark.planted
@pytest.mark.parametrize("plant", FINDS)
def test_a_planted_fault_is_found(plant: str) -> None:
    anomaly, options = FINDS[plant]
    small = ("--messages", "60000", "--patience", "1", "--lease-ms", "500", "--plant", plant, *options)
    # Some faults show only when the nemesis stops a worker in the midst of a handler call: there are more tries.
    found = (checked("--seed", str(seed), *small)["counts"] for seed in range(SEED, SEED + 5))
    assert any(anomaly in counts for counts in found)


def test_a_mode_that_cannot_run_yet_is_left_out_with_its_reason() -> None:
    modes, reasons = known_modes()
    assert Mode.CONCURRENT in modes
    assert len(modes) + len(reasons) == len(Mode)
    assert all(reason.startswith(tuple(mode.value for mode in Mode)) for reason in reasons)


# --- the final read -------------------------------------------------------------------------------


@pytest.fixture
def plan() -> Plan:
    return Plan(seed=SEED, messages=100, modes=(Mode.CONCURRENT,))


@pytest.fixture
def root(plan: Plan, tmp_path: Path) -> Path:
    with Producer(tmp_path / "store", config=plan.store) as producer:
        for number in range(100):
            producer.send(Message("concurrent", plan.body(1 << SEQUENCE_BITS | number, 3, 0)))
    return tmp_path / "store"


def test_the_final_read_finds_every_message_at_its_place(plan: Plan, root: Path) -> None:
    log = read_store(plan, root)
    assert sorted(log.subject.tolist()) == [1 << SEQUENCE_BITS | number for number in range(100)]
    assert sorted(zip(log.queue.tolist(), log.offset.tolist(), strict=True)) == [
        (q, o) for q in range(4) for o in range(25)
    ]
    assert set(log.key.tolist()) == {3}
    assert (log.damaged, log.misplaced) == ([], [])


def test_the_final_read_finds_damage_to_a_record(plan: Plan, root: Path) -> None:
    flip(next((root / "commitlog").iterdir()), 90)
    assert len(read_store(plan, root).damaged) == 1


def test_the_final_read_finds_an_entry_of_another_record(plan: Plan, root: Path) -> None:
    flip(root / "consumequeue" / "concurrent" / "2" / f"{0:020}", 5 * 20 + 7)
    assert read_store(plan, root).misplaced == ["queue 2 of concurrent: entry 5 is wrong"]


def test_the_final_read_finds_a_body_that_is_another_messages(plan: Plan, root: Path) -> None:
    other = Plan(seed=SEED + 1, messages=100, modes=(Mode.CONCURRENT,))
    assert "is not what was sent" in read_store(other, root).damaged[0]


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
