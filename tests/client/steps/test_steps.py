"""Durable steps: what a handler has finished of a message is not done again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from rmqclient import App, Batch, Durability, ReceivedMessage, RetryPolicy, StoreConfig
from rmqclient.errors import HandlerError, InvalidName, QueueError, StepChanged, StepRejected
from rmqclient.failures.dead_letters import Selection, replay
from rmqclient.steps.steps import MOST_STEPS
from rmqclient.testing import Kit

Rmq = Callable[..., Kit]

SOON = RetryPolicy(max_retries=3, delays=(1,))
ONCE = RetryPolicy(max_retries=0)


@dataclass
class Charge:
    id: str
    cents: int


@dataclass
class Late(Charge):
    reason: str


def handled_until_done(kit: Kit, attempts: int = 4) -> None:
    for _ in range(attempts):
        kit.drain(raises=False)
        kit.advance(seconds=1)


@pytest.mark.guarantee("G63")
def test_a_handler_that_raised_goes_on_behind_its_finished_steps(rmq: Rmq) -> None:
    app, ran, seen = App(), list[str](), list[object]()

    def charge() -> Charge:
        ran.append("charge")
        return Charge("c-1", 250)

    @app.handler("orders", group="billing", retry=SOON)
    def bill(message: ReceivedMessage) -> None:
        step = message.steps
        charged = step("charge", charge)
        packed = step("pack", ran.append, "pack")
        seen.append((charged, packed))
        if message.delivery_attempt < 3:
            raise ConnectionError("the parcel service is away")
        step("ship", lambda: ran.append("ship"))

    kit = rmq(app)
    kit.send("orders", {"id": 7})
    handled_until_done(kit)
    assert ran == ["charge", "pack", "ship"]
    assert seen == [(Charge("c-1", 250), None)] * 3, "the first call sees what later calls see"


@pytest.mark.guarantee("G99")
@pytest.mark.parametrize("result", [float("nan"), (1, 2), "x" * 5_000_000], ids=["nan", "tuple", "long"])
def test_a_step_whose_result_cannot_be_stored_is_not_done_again(rmq: Rmq, result: object) -> None:
    app, paid = App(), list[int]()

    def pay() -> object:
        paid.append(1)
        return result

    @app.handler("orders", group="billing", retry=SOON)
    def bill(message: ReceivedMessage) -> None:
        message.steps("charge", pay)

    kit = rmq(app)
    kit.send("orders", {"id": 7})
    handled_until_done(kit)
    assert len(paid) == 1
    assert len(kit.dead_letters("billing")) == 1


def test_results_come_back_as_the_type_that_the_step_names_and_each_message_has_its_own(rmq: Rmq) -> None:
    app, seen = App(), list[object]()

    @app.handler("orders", group="billing", retry=SOON)
    def bill(message: ReceivedMessage) -> None:
        step = message.steps
        results: list[object] = [
            step[Charge]("charge", lambda: Charge(message.body.decode(), 1)),
            step[tuple[int, ...]]("tuple", lambda: (1, 2)),
            step[timedelta]("duration", lambda: timedelta(minutes=3)),
            step("text", lambda: "é"),
            step("bytes", lambda: b"\0\xff"),
            step("json", lambda: {"a": [1, 2.5, None, True]}),
            step("nothing", lambda: None),
        ]
        seen.append(results)
        if message.delivery_attempt == 1:
            raise ConnectionError

    kit = rmq(app)
    for body in ("a", "b"):
        kit.send("orders", body)
    handled_until_done(kit)
    plain = [(1, 2), timedelta(minutes=3), "é", b"\0\xff", {"a": [1, 2.5, None, True]}, None]
    expected = [[Charge(body, 1), *plain] for body in ("a", "b", "a", "b")]
    assert sorted(seen, key=repr) == sorted(expected, key=repr)


def test_coroutines_have_steps_side_by_side(rmq: Rmq) -> None:
    app, ran = App(), list[str]()

    async def work(name: str) -> str:
        await asyncio.sleep(0)
        ran.append(name)
        return name.upper()

    @app.handler("orders", group="billing", retry=SOON)
    async def bill(message: ReceivedMessage) -> None:
        step = message.steps
        both = await asyncio.gather(step.run_async("a", work, "a"), step.run_async("b", lambda: work("b")))
        assert list(both) == ["A", "B"]
        assert await step[str].run_async("c", lambda: work("c")) == "C"
        if message.delivery_attempt == 1:
            raise ConnectionError

    kit = rmq(app)
    kit.send("orders")
    handled_until_done(kit)
    assert ran == ["a", "b", "c"]


def test_an_ordered_handler_has_steps_and_cannot_pause(rmq: Rmq) -> None:
    app, ran, raised = App(), list[str](), list[str]()

    @app.handler("orders", group="billing", order="queue")
    def bill(message: ReceivedMessage) -> None:
        message.steps("charge", lambda: ran.append("charge"))
        try:
            message.steps.sleep(days=1)
        except HandlerError as error:
            raised.append(str(error))
        if message.delivery_attempt == 1:
            raise ConnectionError

    kit = rmq(app)
    kit.send("orders")
    handled_until_done(kit)
    assert ran == ["charge"]
    assert "step.sleep: a handler that keeps an order cannot pause" in raised[0]


def refused(rmq: Rmq, use: Callable[[Any], object], **options: Any) -> QueueError:
    """Return what a handler gets that uses its steps so."""
    app, raised = App(), list[QueueError]()

    @app.handler("orders", group="billing", retry=None if options.get("broadcast") else ONCE, **options)
    def bill(given: Any) -> None:
        message = given[0] if isinstance(given, list) else given
        try:
            use(message)
        except QueueError as error:
            raised.append(error)

    kit = rmq(app)
    kit.send("orders", b"1")
    kit.drain(raises=False)
    return raised[0]


@pytest.mark.guarantee("G66")
@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda m: m.steps("", lambda: 1), "a name is a text of printable characters"),
        (lambda m: m.steps("a\n", lambda: 1), "a name is a text of printable characters"),
        (lambda m: m.steps("x" * 101, lambda: 1), "101 bytes, and at most 100 fit"),
        (lambda m: [m.steps("a", lambda: 1) for _ in range(2)], "has the name of an earlier one"),
        (lambda m: m.steps("big", lambda: b"x" * (4 << 20) + b"x"), "4,194,305 bytes, and a message of this store at"),
        (lambda m: m.steps("a", lambda: Charge("c", 1)), "would come back as {'id': 'c', 'cents': 1}: name its type"),
        (lambda m: m.steps("a", lambda: (1, 2)), "would come back as [1, 2]"),
        (
            lambda m: m.steps[Charge]("a", lambda: Late("c", 1, "why")),
            "is a Late and would come back as a Charge",
        ),
        (
            lambda m: m.steps[list[Charge]]("a", lambda: [Late("c", 1, "why")]),
            "[0] is a Late and would come back",
        ),
        (lambda m: m.steps("a", object), "cannot be stored"),
        (lambda m: m.steps[int]("a", lambda: "one"), "a str, does not fit int"),
        (lambda m: [m.steps(f"{n}", int) for n in range(MOST_STEPS + 1)], "number 1,001, and a message has at"),
    ],
)
def test_what_a_step_cannot_be_is_refused_in_words(rmq: Rmq, use: Callable[[Any], object], words: str) -> None:
    error = refused(rmq, use)
    assert isinstance(error, StepRejected)
    assert words in str(error)


@pytest.mark.parametrize(("option", "value"), [("batch", Batch(10)), ("broadcast", True)])
def test_a_handler_of_many_messages_or_of_every_process_has_no_steps(rmq: Rmq, option: str, value: object) -> None:
    error = refused(rmq, lambda message: message.steps, **{option: value})
    assert f"has {option}=" in str(error)


def test_only_the_handler_that_runs_has_steps_and_only_it_writes_their_topic(rmq: Rmq) -> None:
    app, kept = App(), list[ReceivedMessage]()

    @app.handler("orders", group="billing")
    def keep(message: ReceivedMessage) -> None:
        kept.append(message)

    kit = rmq(app)
    kit.send("orders")
    kit.drain()
    with pytest.raises(HandlerError, match="for the handler that is called with the message, while it runs"):
        _ = kept[0].steps
    with pytest.raises(InvalidName, match="reserved for the results of durable steps"):
        kit.send("%STEPS%billing")


@pytest.mark.guarantee("G66")
@pytest.mark.parametrize(
    ("later", "words"),
    [
        (lambda step: step("charged", dict), "step 1 of this message is result 'charge', which is stored"),
        (lambda step: [step("check", lambda: 1), step("charge", dict)], "'check' of message .* has no result"),
        (lambda step: step.wait_for("charge"), "wait 'charge' of message .* has no result"),
        (lambda step: step[Charge]("charge", lambda: Charge("", 0)), "is stored and does not fit Charge"),
        (lambda step: step[bytes]("charge", lambda: b""), "is stored and does not fit bytes"),
    ],
)
def test_a_handler_that_is_not_the_one_that_stored_its_steps_is_told(
    rmq: Rmq, later: Callable[[Any], object], words: str
) -> None:
    app = App()

    @app.handler("orders", group="billing", retry=SOON)
    def bill(message: ReceivedMessage) -> None:
        step = message.steps
        if message.delivery_attempt > 1:
            later(step)
            return
        step("charge", lambda: {"number": 1})
        raise ConnectionError

    kit = rmq(app)
    kit.send("orders")
    kit.drain(raises=False)
    kit.advance(seconds=1)
    with pytest.raises(StepChanged, match=words):
        kit.drain()


def test_a_finished_step_may_be_taken_away_and_new_ones_come_behind(rmq: Rmq) -> None:
    app, ran = App(), list[str]()

    @app.handler("orders", group="billing", retry=SOON)
    def bill(message: ReceivedMessage) -> None:
        names = ["a", "b", "c"] if message.delivery_attempt == 1 else ["c", "a", "d", "e"]
        for name in names:
            message.steps(name, ran.append, name)
        if message.delivery_attempt == 1:
            raise ConnectionError

    kit = rmq(app)
    kit.send("orders")
    handled_until_done(kit)
    assert ran == ["a", "b", "c", "d", "e"]


def test_a_dead_letter_that_is_replayed_goes_on_behind_its_steps(rmq: Rmq) -> None:
    app, ran, is_mended = App(), list[str](), list[bool]()

    @app.handler("orders", group="billing", retry=ONCE)
    def bill(message: ReceivedMessage) -> None:
        message.steps("charge", lambda: ran.append("charge"))
        if not is_mended:
            raise ConnectionError
        message.steps("ship", lambda: ran.append("ship"))

    kit = rmq(app)
    kit.send("orders")
    kit.drain(raises=False)
    is_mended.append(True)
    assert len(list(replay(kit.producer._backend, "billing", Selection()))) == 1
    kit.drain()
    assert ran == ["charge", "ship"]


def test_with_sync_durability_a_result_is_on_the_disk_before_the_next_step(tmp_path: Any) -> None:
    app, flushed = App(), list[bool]()
    kit = Kit(
        app, config=StoreConfig(durability=Durability.SYNC, commit_log_file_bytes=1 << 22, max_body_bytes=1 << 20)
    )

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        state = kit._store.state
        message.steps("charge", lambda: 1)
        flushed.append(state.flushed_to >= state.published_to)

    with kit:
        kit.send("orders")
        kit.drain()
    assert flushed == [True]


@dataclass
class Refund(Charge):
    """What looks like a charge in JSON."""


@pytest.mark.parametrize("is_evaluated", [False, True], ids=["annotated by a name", "annotated by a class"])
def test_functions_that_one_function_makes_each_give_back_their_own_type(rmq: Rmq, is_evaluated: bool) -> None:
    app, seen = App(), list[object]()

    def making(kind: type[Charge]) -> Callable[[], Charge]:
        def make() -> kind:  # type: ignore[valid-type]
            return kind("c-1", 250)

        if is_evaluated:
            make.__annotations__["return"] = kind
        return make

    @app.handler("orders", group="billing", retry=ONCE)
    def bill(message: ReceivedMessage) -> None:
        seen.append(message.steps("charge", making(Charge)))
        seen.append(message.steps("refund", making(Refund)))

    kit = rmq(app)
    kit.send("orders", {"id": 7})
    kit.drain()
    assert seen == [Charge("c-1", 250), Refund("c-1", 250)]
