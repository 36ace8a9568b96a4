"""Runner: calls a handler with one message, or one batch, after the other, and acknowledges what it has finished.

Every mode of delivery calls its handler here. A mode brings two policies: which messages come next (``work``), and what
follows a call that failed (``failed``).

========================================  ==================================================================
a call                                    then
========================================  ==================================================================
returns, and the messages are still ours  they are acknowledged, and the next call begins
returns, and the queue was lost           they are acknowledged if its next owner has left them to this call, and
                                          nothing more of ``work`` runs here
raises                                    ``failed`` returns a :class:`Hold` or a :class:`Disposition`
must not begin                            ``begin`` returns one
========================================  ==================================================================

A limit on the calls of one handler belongs around :meth:`Runner.run` and :meth:`Runner.run_one`: a pause goes before
what ``work`` yields, a time limit around ``call``. :attr:`Calls.unfinished` stays the plain iterator of a batch: idle
threads look at its length.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from rmqclient.delivery.acknowledging import Acknowledger
from rmqclient.delivery.calls import Calls
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.delivery.turns import Turns
from rmqclient.handler import check_ran
from rmqclient.message import ReceivedMessage
from rmqclient.store.errors import StoreBusy

Given = TypeVar("Given", ReceivedMessage, list[ReceivedMessage])
"""What one call is about."""

Queue = TypeVar("Queue", bound=ProcessQueue)


@dataclass(frozen=True, slots=True)
class Hold:
    """The messages of a call wait in place, and all that are behind them."""

    seconds: float
    messages: list[ReceivedMessage]
    """As they come again: with their next attempt, unless this one does not count."""


class Disposition(enum.Enum):
    """What has become of the messages of a call that failed, or must not begin, when nothing waits for them."""

    BURIED = enum.auto()
    """They are stored as dead letters. The runner acknowledges them and goes on."""

    SENT_BACK = enum.auto()
    """Each is stored for its next attempt, or kept in flight for it. The runner goes on."""

    LOST = enum.auto()
    """The queue has gone to another member, or the consumer ends. The runner stops."""


class Runner:
    """Runs the calls of one handler, in any of its threads."""

    def __init__(self, turns: Turns[Any], acknowledger: Acknowledger) -> None:
        self._turns = turns
        self._acknowledger = acknowledger

    def run(
        self,
        calls: Calls,
        queue: Queue,
        work: Iterable[Given],
        call: Callable[[Any], object],
        begin: Callable[[Given], Hold | Disposition | None],
        acknowledge: Callable[[Given], bool],
        failed: Callable[[Calls, Queue, list[ReceivedMessage], BaseException], Hold | Disposition],
    ) -> Hold | None:
        """Run ``work``, messages or one batch of ``queue``, until it ends, waits, or is lost; return the wait.

        ``begin`` says in the running slot what is about to run, enters a context for it, and returns None if it may.
        ``acknowledge`` returns False when the queue was lost; for single messages it may raise StoreBusy, and is then
        tried again.
        """
        turns, current = self._turns, calls.current
        begun, unhandled = calls.begun, 0
        hold: Hold | None = None
        calls.running = 1
        calls.running_slot.serve(queue.grant.group_queue, queue.grant.epoch)
        current.grant = queue.grant
        for given in work:  # without an order, half a microsecond is all that a message costs: no call too many
            if turns.stopping or queue.revoked:
                break
            calls.begun += 1
            current.given = given
            if (outcome := begin(given)) is None:
                try:
                    if (result := call(given)) is not None:
                        check_ran(result)
                    if calls.is_forked:
                        calls.leave_if_forked()
                except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler is a failure of its message
                    calls.leave_if_forked(error)
                    outcome = failed(calls, queue, _listed(given), error)
                else:
                    try:
                        taken = acknowledge(given)
                    except StoreBusy:
                        taken = False
                    if taken or self._acknowledger.acknowledge_all(queue, _listed(given), calls.running_slot):
                        continue
                    self._acknowledger.refused(queue)
                    outcome = Disposition.LOST
            unhandled += 1
            if isinstance(outcome, Hold):
                hold = outcome
                break
            if not self._goes_on(queue, given, outcome):
                break
        # There are several calls only of one message each, so the last call has as many messages as all others.
        calls.handled += (calls.begun - begun - unhandled) * calls.running
        calls.rest()
        return hold

    def _goes_on(self, queue: ProcessQueue, given: Given, outcome: Disposition) -> bool:
        """Acknowledge messages that were buried; tell whether what is behind them is to run here."""
        if outcome is not Disposition.BURIED:
            return outcome is Disposition.SENT_BACK
        if self._acknowledger.give_back(queue, _listed(given), dead_lettered=True):
            return True
        self._acknowledger.refused(queue)
        return False

    async def run_one(
        self,
        calls: Calls,
        queue: Queue,
        message: ReceivedMessage,
        call: Callable[[ReceivedMessage], Awaitable[object]],
        acknowledge: Callable[[Calls, Queue, ReceivedMessage], Awaitable[bool]],
        failed: Callable[[Calls, Queue, ReceivedMessage, BaseException], Awaitable[None]],
    ) -> None:
        """Run one message of an ``async`` handler, in the coroutine that is its own."""
        calls.begun += 1
        calls.running = 1
        calls.running_slot.serve(queue.grant.group_queue, queue.grant.epoch)
        if queue.revoked:  # while the loop was kept: another member may have the message
            calls.rest()
            return
        calls.running_slot.note(message)
        try:
            check_ran(await call(message))
            calls.leave_if_forked()
        except BaseException as error:  # noqa: BLE001 - the loop would end with SystemExit, and every coroutine with it
            calls.leave_if_forked(error)
            await failed(calls, queue, message, error)
        else:
            if await acknowledge(calls, queue, message):
                calls.handled += 1
            else:
                self._acknowledger.refused(queue)
        calls.rest()


def _listed(given: ReceivedMessage | list[ReceivedMessage]) -> list[ReceivedMessage]:
    return given if isinstance(given, list) else [given]
