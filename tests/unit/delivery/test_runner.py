"""Runner: which call comes after which outcome, and what is acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqclient.delivery.calls import Calls
from rmqclient.delivery.runner import Disposition, Hold, Runner
from rmqclient.store.errors import StoreBusy


class Rig:
    """A runner, and what it did, in order."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Any]] = []
        self.is_left = True
        """Whether a second acknowledgement is accepted: the queue was lost, and the messages are left to the call."""
        self.turns: Any = SimpleNamespace(stopping=False)
        self.queue: Any = SimpleNamespace(revoked=False, grant=SimpleNamespace(group_queue=1, epoch=1))
        self.calls = Calls()
        slot: Any = SimpleNamespace(serve=lambda *_: None, rest=lambda: None)
        self.calls.running_slot = slot
        self.calls.current = SimpleNamespace(given=None, steps=None)  # type: ignore[assignment]
        acknowledger: Any = SimpleNamespace(
            acknowledge_all=lambda _, messages, _slot: self.noting("tried again", returns=self.is_left)(messages),
            give_back=lambda _, messages, **_kind: self.noting("given back", returns=True)(messages),
            refused=lambda _: self.done.append(("refused", None)),
        )
        self.runner = Runner(cast("Any", self.turns), acknowledger)

    def noting(self, what: str, returns: object) -> Callable[..., Any]:
        def note(*given: Any) -> object:
            self.done.append((what, given[-1]))
            return returns

        return note

    def run(
        self,
        work: Any,
        *,
        call: Callable[[Any], object] = lambda _: None,
        begin: Callable[[Any], Any] = lambda _: None,
        acknowledge: Callable[[Any], bool] | None = None,
        failed: Any = None,
    ) -> Hold | None:
        acknowledge = acknowledge or self.noting("acknowledged", returns=True)
        return self.runner.run(self.calls, self.queue, work, call, begin, acknowledge, failed)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def broken(_given: object) -> None:
    raise ValueError("broken")


def test_what_returns_is_acknowledged_and_counted_message_by_message(rig: Rig) -> None:
    assert rig.run(["a", "b"]) is None
    assert rig.done == [("acknowledged", "a"), ("acknowledged", "b")]
    assert (rig.calls.begun, rig.calls.handled, rig.calls.running) == (2, 2, 0)


def test_a_batch_is_one_call_that_counts_each_of_its_messages(rig: Rig) -> None:
    def begin(batch: list[str]) -> None:
        rig.calls.running = len(batch)

    rig.run([["a", "b", "c"]], begin=begin)
    assert (rig.calls.begun, rig.calls.handled) == (1, 3)


def test_a_hold_ends_the_run_and_is_returned(rig: Rig) -> None:
    hold = Hold(2.0, [])
    assert rig.run(["a", "b"], call=broken, failed=lambda *_: hold) is hold
    assert (rig.done, rig.calls.begun, rig.calls.handled) == ([], 1, 0)


def test_a_hold_instead_of_a_call_ends_the_run_too(rig: Rig) -> None:
    hold = Hold(2.0, [])
    assert rig.run(["a", "b"], call=rig.noting("called", None), begin=lambda _: hold) is hold
    assert rig.done == []


def test_a_dead_letter_is_given_back_and_the_next_message_runs(rig: Rig) -> None:
    outcomes: Iterator[Disposition | None] = iter([Disposition.BURIED, None])
    rig.run(["a", "b"], begin=lambda _: next(outcomes))
    assert rig.done == [("given back", ["a"]), ("acknowledged", "b")]
    assert rig.calls.handled == 1, "nobody has handled the dead letter"


def test_a_message_that_was_sent_back_holds_up_no_other(rig: Rig) -> None:
    rig.run(
        ["a", "b"], call=lambda given: broken(given) if given == "a" else None, failed=lambda *_: Disposition.SENT_BACK
    )
    assert rig.done == [("acknowledged", "b")]


def test_a_refused_acknowledgement_ends_the_run(rig: Rig) -> None:
    rig.is_left = False
    rig.run(["a", "b"], acknowledge=lambda _: False)
    assert rig.done == [("tried again", ["a"]), ("refused", None)]
    assert (rig.calls.begun, rig.calls.handled) == (1, 0)


def test_a_message_that_the_next_owner_left_to_its_call_is_acknowledged(rig: Rig) -> None:
    rig.run(["a"], acknowledge=lambda _: False)
    assert rig.done == [("tried again", ["a"])]
    assert rig.calls.handled == 1


def test_a_message_is_not_handled_again_because_the_store_is_busy(rig: Rig) -> None:
    def busy(_given: object) -> bool:
        raise StoreBusy("busy")

    rig.run(["a"], acknowledge=busy)
    assert rig.done == [("tried again", ["a"])]
    assert rig.calls.handled == 1


def test_nothing_begins_when_the_consumer_stops_or_the_queue_is_revoked(rig: Rig) -> None:
    rig.turns.stopping = True
    rig.run(["a"])
    rig.turns.stopping, rig.queue.revoked = False, True
    rig.run(["a"])
    assert (rig.done, rig.calls.begun) == ([], 0)


def test_whatever_a_handler_raises_is_a_failure(rig: Rig) -> None:
    errors: list[BaseException] = []

    def leave(_given: object) -> None:
        raise SystemExit(3)

    def failed(_calls: object, _queue: object, messages: list[str], error: BaseException) -> Disposition:
        errors.append(error)
        return Disposition.SENT_BACK

    rig.run(["a"], call=leave, failed=failed)
    assert [type(error) for error in errors] == [SystemExit]
