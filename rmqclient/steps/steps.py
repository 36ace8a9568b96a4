"""Steps: the interface by which a handler stores finished steps, so that they are not done again.

::

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        step = message.steps
        charge = step("charge", lambda: pay(message.keys[0]))       # stored when it returns
        step.sleep(days=3)                                          # the worker does other things
        approval = step[Approval].wait_for("approved", timeout=timedelta(days=7))
        step("ship", ship, charge["id"], approval.by)

A handler that was killed, raised or paused is called again from its beginning. Then each step with a stored result
returns that at once, and the first one without a result runs. docs/handling/steps.md has the guarantees.

A call counts its steps. If a step has no result, but a step with its number and another name is stored, which this call
has not used, the handler has changed: StepChanged.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from rmqclient.duration import LONGEST_DELAY, Duration, in_seconds
from rmqclient.errors import HandlerError, SignalTimeout, StepChanged, StepRejected, StepsLost
from rmqclient.steps.ends import Lost, Paused, StepsEnd
from rmqclient.steps.journal import COUNT, Journal, numbered
from rmqclient.steps.record import Key, Kind, Record, check_name
from rmqclient.steps.stored_copies import id_of
from rmqclient.steps.values import Coding, coding_for, coding_of
from rmqclient.store import clock

if TYPE_CHECKING:
    from rmqclient.message import ReceivedMessage

MOST_STEPS = 1_000
"""Steps, sleeps and waits of one message, at most."""

P = ParamSpec("P")
T = TypeVar("T")

_LONGEST_S = LONGEST_DELAY.total_seconds()


class Steps:
    """The steps of one message, in one call of its handler; ``message.steps`` returns them. Safe for threads.

    ``can_pause`` is empty, or the reason for which the message cannot be paused. Raises StepsLost if stored results of
    the message are missing, and as a read of the store. If a later copy of the message is under way, the call ends.
    """

    def __init__(
        self, journal: Journal, message: ReceivedMessage, is_ours: Callable[[], bool], *, no_pause: str = ""
    ) -> None:
        self.message = message
        self._journal = journal
        self._is_ours = is_ours
        self._no_pause = no_pause
        self._id = id_of(message)
        self._is_copy = not message.properties.keys().isdisjoint(("RETRY_TOPIC", "REAL_TOPIC", COUNT))
        self._stored = journal.find(self._id, is_copy=self._is_copy)
        self._at = {record.number: record for record in self._stored.values() if record.number}
        self._asked: set[Key] = set()
        self._numbers = itertools.count(1)
        self._naps = itertools.count(1)
        self._end: StepsEnd | None = None
        self._check_all_there()
        if not no_pause and (self._stored or message.delivery_attempt > 1):
            self._give_way()

    def __call__(self, name: str, function: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T:
        """Return the stored result of a step; without one, call the function and store its result.

        When this returns, the result is as durable as a sent message. It is decoded from the stored bytes, into the
        return type of the function. An exception of the function is not stored.

        Raises as the function, StepRejected for a name or a result that cannot be stored, StepChanged if the handler
        has changed since the results were stored, and as a send.
        """
        coding = coding_for(function)
        number, stored = self._ask("result", name)
        if stored is not None:
            return cast("T", coding.decoded(self._called("result", name), stored))
        self._check_mine()
        return cast("T", self._keep_result(name, number, coding, function(*args, **named)))

    def __getitem__(self, kind: type[T]) -> StepsOf[T]:
        """Return these steps for results of a type: ``step[Charge]("charge", ...)`` returns a Charge.

        Raises HandlerError for a type that JSON cannot be decoded into.
        """
        return StepsOf(self, coding_of(kind))

    async def run_async(self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **named: P.kwargs) -> T:
        """As :meth:`__call__`, for an ``async`` function, without blocking the event loop."""
        return cast("T", await self._run_async(coding_for(function), name, lambda: function(*args, **named)))

    def sleep(
        self,
        duration: Duration | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """Sleep without occupying the worker, and resume here.

        The end is fixed at the first call: a kill or a restart does not extend it. The timer delivers the message
        again, as the same attempt. Raises ValueError for a negative duration, for one above ten years, and for a
        ``duration`` beside days, hours, minutes or seconds; HandlerError for an ordered handler, and as a send.
        """
        given = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if duration is not None and given:
            raise ValueError(f"sleep: both {duration!r} and {given}: give one of the two")
        length_s = in_seconds("sleep", given if duration is None else duration, most=_LONGEST_S)
        self._check_can_pause("sleep")
        due_ms = self._until("sleep", f"sleep {next(self._naps)}", length_s)
        if due_ms > clock.wall_ms():
            raise self._paused(f"asleep until {due_ms} ms", due_ms, None)

    def wait_for(self, name: str, timeout: Duration | None = None) -> Any:
        """Wait for a signal without occupying the worker, and return its payload.

        :meth:`rmqclient.Producer.signal` sends it, perhaps before this call. Without a ``timeout`` the message waits
        for ten years. Raises SignalTimeout at the time-out, and in every later call; ValueError and HandlerError as
        :meth:`sleep`.
        """
        return self._wait_for(coding_of(Any), name, timeout)

    # --- a step -----------------------------------------------------------------------------------

    async def _run_async(self, coding: Coding, name: str, function: Callable[[], Awaitable[object]]) -> object:
        import asyncio  # noqa: PLC0415 - not needed without coroutines

        number, stored = self._ask("result", name)
        if stored is not None:
            return coding.decoded(self._called("result", name), stored)
        self._check_mine()
        value = await function()
        if self._journal.is_quick:
            return self._keep_result(name, number, coding, value)
        return await asyncio.to_thread(self._keep_result, name, number, coding, value)

    def _run(self, coding: Coding, name: str, function: Callable[[], object]) -> object:
        number, stored = self._ask("result", name)
        if stored is not None:
            return coding.decoded(self._called("result", name), stored)
        self._check_mine()
        return self._keep_result(name, number, coding, function())

    def _keep_result(self, name: str, number: int, coding: Coding, value: object) -> object:
        form, body, back = coding.encoded(f"the result of {self._called('result', name)}", value, self._journal.limit)
        self._check_mine()
        self._add(Record(kind="result", name=name, number=number, form=form, body=body))
        return back

    def _ask(self, kind: Kind, name: str) -> tuple[int, Record | None]:
        """Return the number of a step in this call, and its record, or None."""
        if self._end is not None:  # the handler caught the end of its call
            raise self._end
        key = kind, check_name(name)
        if key in self._asked:
            raise StepRejected(
                f"{self._called(kind, name)} has the name of an earlier one of this call: give it another"
            )
        self._asked.add(key)
        number, stored = next(self._numbers), self._stored.get(key)
        if number > MOST_STEPS:
            raise StepRejected(
                f"{self._called(kind, name)} is number {number:,}, and a message has at most {MOST_STEPS:,}: let one "
                "step do more, or send messages for the parts"
            )
        there = self._at.get(number)
        if stored is None and there is not None and there.key not in self._asked:
            raise StepChanged(
                f"{self._called(kind, name)} has no result, and step {number} of this message is {there.kind} "
                f"{there.name!r}, which is stored: a step was renamed, or added before one that is finished. Let "
                "messages that are under way be finished by the handler that began them, or keep its names"
            )
        return number, stored

    # --- pauses -----------------------------------------------------------------------------------

    def _wait_for(self, coding: Coding, name: str, timeout: Duration | None) -> Any:
        length_s = _LONGEST_S if timeout is None else in_seconds("timeout", timeout, most=_LONGEST_S)
        self._check_can_pause("wait_for")
        until_ms = self._until("wait", name, length_s)
        answer = self._answer(name)
        if answer is None and until_ms <= clock.wall_ms():
            self._journal.add(self._id, Record(kind="timeout", name=name))
            answer = self._answer(name)
        if answer is None:
            raise self._paused(f"waiting for {name!r}", until_ms, name)
        if answer.kind == "timeout":
            raise SignalTimeout(f"message {self._id} waited for {name!r} in vain; its time was up at {until_ms} ms")
        return coding.decoded(f"signal {name!r} of message {self._id}", answer)

    def _until(self, kind: Kind, name: str, length_s: float) -> int:
        """Return the end of a sleep or a wait, in ms since 1970; the first call stores it."""
        number, stored = self._ask(kind, name)
        if stored is not None:
            return int(stored.body)
        self._check_mine()
        until_ms = clock.wall_ms() + -(-round(length_s * 1e6) // 1_000)
        self._add(Record(kind=kind, name=name, number=number, body=b"%d" % until_ms), lasting=False)
        return until_ms

    def _answer(self, name: str) -> Record | None:
        key = "answer", name
        if key not in self._stored:
            self._stored |= self._journal.find(self._id, is_copy=self._is_copy)
        return self._stored.get(key)

    def _paused(self, text: str, due_ms: int, waits_for: str | None) -> StepsEnd:
        def store() -> None:
            self._journal.postpone(self.message, self._stored.values(), due_ms, waits_for)

        self._check_mine()
        return self._ended(Paused(text, store))

    def _ended(self, end: StepsEnd) -> StepsEnd:
        self._end = end
        return end

    # --- checks -----------------------------------------------------------------------------------

    def keep(self, until_ms: int) -> None:
        """Keep the records until a time. Raises as :meth:`Journal.keep`."""
        self._journal.keep(self._id, self._stored.values(), until_ms)

    def count(self) -> dict[str, str]:
        """Return the property of a copy with the number of stored steps."""
        return self._journal.count(self._stored.values())

    def keep_late_signals(self, until_ms: int) -> None:
        """Keep signals that came during the call; call it after storing a copy. Raises as a send."""
        self._journal.keep_late_signals(self._id, until_ms)

    def _add(self, record: Record, *, lasting: bool = True) -> None:
        self._stored[record.key] = self._journal.add(self._id, record, lasting=lasting)

    def _check_mine(self) -> None:
        """Raise Lost if another member has the queue now."""
        if not self._is_ours():
            raise self._ended(Lost("the queue has gone to another member", lambda: None))

    def _check_can_pause(self, what: str) -> None:
        if self._no_pause:
            raise HandlerError(f"step.{what}: {self._no_pause}")

    def _give_way(self) -> None:
        """End the call if a later copy of the message is under way; use the records of a finished copy.

        Another thread may have finished the copy since this call has read the records.
        """
        end = self._journal.moved_on(self.message)
        if end is not None:
            raise self._ended(end)
        self._stored = self._journal.find(self._id)
        self._at = {record.number: record for record in self._stored.values() if record.number}

    def _check_all_there(self) -> None:
        group, _, count = self.message.properties.get(COUNT, "").partition(" ")
        there = numbered(self._stored.values())
        if group == self._journal.group and count.isdecimal() and there < int(count):
            raise StepsLost(
                f"message {self._id} had {count} stored steps, and the store has {there} of them: "
                "retention or a full disk removed the others. Finish it by hand, or send it again as a new message"
            )
        if self.message.commit_log_offset < self._journal.log_begin:
            raise StepsLost(
                f"message {self._id} of the compact topic {self.message.topic!r} is older than the log, and results of "
                "its steps would be gone with that. Handle it without steps, or send it again as a new message"
            )

    def _called(self, kind: Kind, name: str) -> str:
        return f"{'step' if kind == 'result' else kind} {name!r} of message {self._id}"


class StepsOf(Generic[T]):
    """The steps of a message for results of one type: ``step[Charge]``."""

    def __init__(self, steps: Steps, coding: Coding) -> None:
        self._steps = steps
        self._coding = coding

    def __call__(self, name: str, function: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T:
        """Run a step, as :meth:`Steps.__call__`."""
        return cast("T", self._steps._run(self._coding, name, lambda: function(*args, **named)))  # noqa: SLF001

    async def run_async(self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **named: P.kwargs) -> T:
        """Run a step, as :meth:`Steps.run_async`."""
        return cast("T", await self._steps._run_async(self._coding, name, lambda: function(*args, **named)))  # noqa: SLF001

    def wait_for(self, name: str, timeout: Duration | None = None) -> T:
        """Wait for a signal, as :meth:`Steps.wait_for`."""
        return cast("T", self._steps._wait_for(self._coding, name, timeout))  # noqa: SLF001
