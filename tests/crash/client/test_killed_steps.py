"""A kill anywhere in a handler of three steps: another worker goes on behind what was finished."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from rmqclient import App, ReceivedMessage, RetryPolicy
from rmqclient.store.crash_points import CrashPoint
from rmqclient.testing import Kit
from tests.support.sweeps import each_seventh

Rmq = Callable[..., Kit]

NAMES = ("charge", "pack", "ship")
MOMENTS = [(when, name) for name in NAMES for when in ("before", "inside", "behind")]
NOT_STORED = [CrashPoint.APPEND_LOCKED, CrashPoint.RECORD_HALF_COPIED, CrashPoint.RECORDS_COPIED]
STORED = [CrashPoint.RECORDS_ANNOUNCED, CrashPoint.ENTRIES_WRITTEN, CrashPoint.RECORDS_PUBLISHED]
GIVEN_BACK = [CrashPoint.ACK_LOCKED, CrashPoint.ACK_MARKED, CrashPoint.ACK_CLEARED]


def write(effects: Path, name: str) -> None:
    """Add the name of an effect to a file, which a kill leaves there."""
    with effects.open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")


def three_steps(effects: Path, die_at: dict[str, tuple[str, str]]) -> App:
    """Return an application that writes each effect to a file, and dies at a moment when it is told to."""
    app = App()

    def at(when: str, name: str) -> None:
        if die_at.get("moment") == (when, name):
            os.kill(os.getpid(), signal.SIGKILL)

    def effect(name: str) -> str:
        write(effects, name)
        at("inside", name)
        return name.upper()

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        for name in NAMES:
            at("before", name)
            assert message.steps(name, effect, name) == name.upper()
            at("behind", name)

    return app


@pytest.mark.crash
@pytest.mark.guarantee("G63")
def test_a_handler_that_was_killed_goes_on_behind_its_finished_steps(rmq: Rmq, tmp_path: Path) -> None:
    # Given a message for each moment before, inside and behind each of three steps, at which its process is killed
    die_at: dict[str, tuple[str, str]] = {}
    effects = tmp_path / "effects"
    kit = rmq(three_steps(effects, die_at))
    for moment in MOMENTS:
        effects.write_text("", encoding="utf-8")
        kit.send("orders")
        die_at["moment"] = moment
        kit.crash_here("ack_locked")

        # When another process takes over
        del die_at["moment"]
        assert kit.drain().handled == 1

        # Then only the step that ran when the kill came has run twice
        when, name = moment
        twice = {name} if when == "inside" else set()
        assert Counter(effects.read_text(encoding="utf-8").split()) == {each: 1 + (each in twice) for each in NAMES}


@pytest.mark.crash
@pytest.mark.guarantee("G63", "G64")
@pytest.mark.parametrize(("point", "step"), each_seventh(product([*STORED, *NOT_STORED], range(len(NAMES)))))
def test_a_kill_while_a_result_is_stored_leaves_it_stored_or_the_step_to_be_run_again(
    rmq: Rmq, tmp_path: Path, point: CrashPoint, step: int
) -> None:
    effects = tmp_path / "effects"
    kit = rmq(three_steps(effects, {}))
    kit.send("orders")
    kit.crash_here(point, passes=step)
    assert kit.drain().handled == 1
    ran = Counter(effects.read_text(encoding="utf-8").split())
    assert set(ran) == set(NAMES)
    assert sum(ran.values()) <= len(NAMES) + (point in NOT_STORED)
    if point in STORED:
        assert ran[NAMES[step]] == 1


@pytest.mark.crash
@pytest.mark.guarantee("G65")
@pytest.mark.parametrize("point", [*NOT_STORED, *STORED, *GIVEN_BACK])
def test_a_kill_while_a_message_goes_to_sleep_leaves_it_asleep_once(
    rmq: Rmq, tmp_path: Path, point: CrashPoint
) -> None:
    app, effects = App(), tmp_path / "effects"
    effect = partial(write, effects)

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        step = message.steps
        step("charge", effect, "charge")
        step.sleep(hours=1)
        step("ship", effect, "ship")

    # Given a process that was killed while it stored the copy that waits, or gave the message back
    kit = rmq(app)
    kit.send("orders")
    kit.crash_here(point, passes=0 if point in GIVEN_BACK else 2)

    # When others go on
    kit.drain()
    assert effects.read_text(encoding="utf-8").split() == ["charge"]
    kit.advance(hours=1)
    kit.drain()

    # Then the message came once: no step ran twice, and one copy was handled
    assert effects.read_text(encoding="utf-8").split() == ["charge", "ship"]
    assert len(kit.sent("%RETRY%billing")) == 1


@pytest.mark.crash
@pytest.mark.guarantee("G63")
def test_a_message_that_killed_two_processes_is_not_stored_beside_the_copy_that_goes_on(
    rmq: Rmq, tmp_path: Path
) -> None:
    # Given a message that failed and was stored for its retry by a process that died then, as did the next one
    app, effects = App(), tmp_path / "effects"
    effect = partial(write, effects)

    @app.handler("orders", group="billing", retry=RetryPolicy(delays=(3_600,)))
    def bill(message: ReceivedMessage) -> None:
        message.steps("charge", effect, "charge")
        if message.delivery_attempt == 1:
            raise ConnectionError
        message.steps("ship", effect, "ship")

    kit = rmq(app)
    kit.send("orders")
    kit.crash_here(CrashPoint.RECORDS_PUBLISHED, passes=1)  # the first one is that of the step
    kit.crash_here(bill)

    # When a third one finds it, which runs no such message in place
    kit.drain()
    kit.advance(hours=1)
    kit.drain()

    # Then one copy was handled
    assert effects.read_text(encoding="utf-8").split() == ["charge", "ship"]
    assert len(kit.sent("%RETRY%billing")) == 1


@pytest.mark.crash
def test_a_message_without_steps_is_not_stored_beside_its_copy_either(rmq: Rmq, tmp_path: Path) -> None:
    app, effects = App(), tmp_path / "effects"

    @app.handler("orders", group="billing", retry=RetryPolicy(delays=(3_600,)))
    def bill(message: ReceivedMessage) -> None:
        if message.delivery_attempt == 1:
            raise ConnectionError
        write(effects, "billed")

    kit = rmq(app)
    kit.send("orders")
    kit.crash_here(CrashPoint.RECORDS_PUBLISHED)
    kit.crash_here(bill)
    kit.drain()
    kit.advance(hours=1)
    kit.drain()
    assert effects.read_text(encoding="utf-8").split() == ["billed"]
    assert len(kit.sent("%RETRY%billing")) == 1
