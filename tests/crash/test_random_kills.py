"""Senders and consumers killed at random moments, and the judge of what is left, who is judged here as well."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient.store import Message, open_store
from tests.crash.campaign import look_at
from tests.crash.history import Delivery, Send, Stored, deliveries_of, judge, sends_of
from tests.crash.processes.pid_namespaces import need_pid_namespaces
from tests.support.host.forking import ROOT
from tests.support.stores import SMALL, TOPIC, appender_of
from tests.support.sweeps import share_of

ROUNDS = int(os.environ.get("RMQ_TEST_KILL_ROUNDS", share_of(150)))
SEED = int(os.environ.get("RMQ_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


@pytest.mark.crash
@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G3")
@pytest.mark.guarantee("G4")
@pytest.mark.guarantee("G6")
@pytest.mark.guarantee("G7")
def test_random_kills_lose_nothing_and_repeat_only_what_was_in_flight(tmp_path: Path) -> None:
    # Given real senders and consumers, killed round after round; the seed is the first line of the output
    command = ["-m", "tests.crash.campaign", "--rounds", str(ROUNDS), "--seed", str(SEED), "--directory", str(tmp_path)]
    campaign = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)

    # Then it finds no fault
    assert campaign.returncode == 0, f"{campaign.stdout}\n{campaign.stderr}"
    assert campaign.stderr == ""


@pytest.mark.crash
@pytest.mark.guarantee("G86")
def test_random_kills_in_containers_lose_nothing_while_others_stand_still(tmp_path: Path) -> None:
    need_pid_namespaces()
    rounds = str(max(10, ROUNDS // 4))
    command = ["-m", "tests.crash.campaign", "--containers", "--rounds", rounds, "--seed", str(SEED)]
    campaign = subprocess.run(
        [sys.executable, *command, "--directory", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert campaign.returncode == 0, f"{campaign.stdout}\n{campaign.stderr}"


@pytest.mark.crash
def test_a_message_that_waits_for_a_retry_is_no_fault_to_the_look_at_the_store(tmp_path: Path) -> None:
    with open_store(tmp_path, config=SMALL) as store:
        appender_of(store).append(Message(TOPIC, b"sent back after two deaths", tags="red"), delay_level=1)
        assert look_at(store) == []


# --- the judge ------------------------------------------------------------------------------------

SENDS = [Send([(1, 0)], 0), Send([(1, 1), (1, 2), (1, 3)], 0), Send([(1, 4)], None)]
STORED = [Stored((1, number), 0, number) for number in range(5)]
DELIVERIES = [Delivery(7, 1, number, (1, number), ended=True) for number in range(5)]


def faults(
    sends: list[Send] = SENDS,
    stored: list[Stored] = STORED,
    deliveries: list[Delivery] = DELIVERIES,
    killed: tuple[int, ...] = (),
) -> dict[str, int]:
    found = judge(sends, stored, deliveries, killed).faults
    return {name: count for name, count in found.items() if count}


def test_a_history_without_a_fault_has_none() -> None:
    assert faults() == {}
    assert faults(stored=STORED[:4], deliveries=DELIVERIES[:4]) == {}, (
        "a send that never returned may have stored nothing"
    )


def test_a_message_that_is_not_stored_is_lost_if_its_send_returned() -> None:
    assert faults(stored=STORED[1:], deliveries=DELIVERIES[1:]) == {"lost": 1}


def test_a_message_that_was_never_sent_is_a_phantom() -> None:
    assert faults(sends=SENDS[:2]) == {"phantom": 1}
    assert faults(deliveries=[*DELIVERIES, Delivery(7, 1, 9, (2, 0), ended=True)]) == {"phantom": 1}


def test_a_message_that_is_stored_twice_is_a_phantom() -> None:
    assert faults(stored=[*STORED, Stored((1, 4), 0, 5)]) == {"phantom": 1}


def test_a_body_that_is_not_what_was_sent_is_damage() -> None:
    assert faults(stored=[*STORED[:4], Stored(None, 0, 4)], deliveries=DELIVERIES[:4]) == {"damaged": 1}
    assert faults(deliveries=[*DELIVERIES, Delivery(7, 1, 9, (-1, -1), ended=True)]) == {"damaged": 1}


def test_a_part_of_a_batch_is_a_torn_batch() -> None:
    sends = [SENDS[0], Send(SENDS[1].names, None)]
    assert faults(sends, STORED[:3], DELIVERIES[:3]) == {"torn_batches": 1}


def test_messages_out_of_order_are_found() -> None:
    swapped = [Stored((1, 0), 0, 4), *STORED[1:4], Stored((1, 4), 0, 0)]
    assert faults(stored=swapped)["disordered"] >= 1
    between = [*STORED[:2], Stored((1, 2), 0, 5), *STORED[3:]]
    assert faults(stored=between)["disordered"] >= 1
    elsewhere = [Stored((1, 0), 1, 0), *STORED[1:]]
    assert faults(stored=elsewhere) == {"disordered": 1}


def test_a_stored_message_whose_handler_never_returned_is_unhandled() -> None:
    assert faults(deliveries=DELIVERIES[:4]) == {"unhandled": 1}
    assert faults(deliveries=[*DELIVERIES[:4], DELIVERIES[4]._replace(ended=False)]) == {"unhandled": 1}


def test_a_second_delivery_is_explained_only_by_a_kill_in_the_midst_of_the_first() -> None:
    again = Delivery(8, 2, 10, (1, 4), ended=True)
    assert faults(deliveries=[*DELIVERIES, again]) == {"unexplained": 1}
    assert faults(deliveries=[*DELIVERIES, again], killed=(8,)) == {"unexplained": 1}
    assert faults(deliveries=[*DELIVERIES, again], killed=(7,)) == {}
    earlier = again._replace(name=(1, 3))
    assert faults(deliveries=[*DELIVERIES, earlier], killed=(7,)) == {"unexplained": 1}


def test_extra_deliveries_are_counted_per_kill() -> None:
    other_thread = Delivery(7, 2, 3, (1, 0), ended=False)
    repeated = [Delivery(8, 3, 20 + number, (1, number), ended=True) for number in (0, 4)]
    figures = judge(SENDS, STORED, [*DELIVERIES[1:], other_thread, *repeated], [7])
    assert (figures.extra_deliveries, figures.most_extra_per_kill, figures.most_in_flight_per_kill) == (2, 2, 2)
    assert figures.unexplained == 0


def test_what_a_sender_said_is_read() -> None:
    assert list(sends_of(3, ["i 0 1", "o 0 1 2", "i 1 2"])) == [Send([(3, 0)], 2), Send([(3, 1), (3, 2)], None)]


def test_what_a_consumer_said_is_read() -> None:
    lines = ["s 5 100 3 0 1 0", "s 6 101 3 1 1 1", "e 5 102 3 0 1 0"]
    assert deliveries_of(9, lines) == [
        Delivery(9, 5, 100, (3, 0), ended=True),
        Delivery(9, 6, 101, (3, 1), ended=False),
    ]
