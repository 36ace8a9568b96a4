"""Key-ordered delivery: the messages of one sharding key one after the other, different keys side by side.

Each key of a queue that has messages in flight has a lane (:mod:`rmqclient.delivery.modes.lanes`). The thread that
takes a batch sorts it into lanes; a lane that has something to do is one piece of work, for one thread at a time. A
message without a sharding key has a lane of its own, because an order is only promised to messages with the same key.

==============  ==========================================================================================
handler         then
==============  ==========================================================================================
returns         the message is acknowledged by its bit, and the next one of its key is begun
raises          its lane is held, then the same message comes again: :mod:`rmqclient.delivery.suspension`
==============  ==========================================================================================

A held lane holds no other lane, up to the limits of :mod:`rmqclient.delivery.process_queue`: its messages stay in
flight, and the committed offset stays below them. With 1,000 of them, or 2,000 offsets further on, the queue gives no
more messages; ``flow_control`` says which limit was reached.

The order is kept through a rebalance, a crash and a restart. The bits tell which messages are finished. A new owner
takes all others from the committed offset on, in the order of the queue, so of one key always the oldest unfinished
message first. No other process handles messages of the queue then: an owner gives the queue up when its last handler
has returned, or is dead, or its lease has run out. A process that was stopped past its lease and wakes up inside a
handler goes on there; its acknowledgement is refused, and it begins no other message of the queue.

A delivery attempt that ends in the death of the process is counted by the table of running messages. The owner counts
the attempts that raised, and a new owner counts them from 1 again: there may be as many failing keys as messages in
flight.

All threads take their work from one queue, made in C. It holds lanes, and the token of the thread that looks for
messages. A thread that finds work takes only the lock of the lanes, once when it has emptied a lane.
"""

from __future__ import annotations

import queue as queues
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any, Final

from rmqclient.backend.group_protocols import Death, Grant, Membership
from rmqclient.backend.protocols import Backend
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.caller import Callers
from rmqclient.delivery.calls import Calls
from rmqclient.delivery.delivery import Delivery
from rmqclient.delivery.modes.lanes import KeyOrderedQueue, Lane
from rmqclient.delivery.suspects import is_suspect
from rmqclient.delivery.suspension import Suspension
from rmqclient.failures.retry import Retries
from rmqclient.handler import Handler, check_ran
from rmqclient.message import ReceivedMessage
from rmqclient.steps.ends import failures_in
from rmqclient.store.errors import StoreBusy

_LOOK: Final = object()
"""The token: the thread that has it looks for messages."""


class KeyOrderedDelivery(Delivery[KeyOrderedQueue]):
    """The threads of one handler in one process, which keep the order of each sharding key."""

    keeps_order = True

    def __init__(
        self,
        backend: Backend,
        handler: Handler,
        membership: Membership,
        retries: Retries,
        config: ConsumerConfig,
        callers: Callers,
    ) -> None:
        super().__init__(backend, handler, membership, config, callers)
        self._suspension = Suspension(handler, config, retries)
        self._work: queues.SimpleQueue[Lane | object | None] = queues.SimpleQueue()
        self._work.put(_LOOK)

    def make_queue(self, grant: Grant, deaths: Mapping[int, Sequence[Death]]) -> KeyOrderedQueue:
        """Return the process queue of this mode for a grant."""
        return KeyOrderedQueue(grant, self._config, deaths)

    def stop_taking(self) -> None:
        """Begin no further message; running ones go on."""
        super().stop_taking()
        for _ in self._calls:
            self._work.put(None)

    def is_handling(self, queue: KeyOrderedQueue) -> bool:
        """Tell whether a handler runs, or is about to run, with a message of this queue."""
        return queue.lanes.running

    def _serve(self, calls: Calls) -> None:
        call = self._callers.waiting(self._handler, self._call)
        while (work := self._work.get()) is not None:
            if not isinstance(work, Lane):
                self._look()
            elif work.lanes.queue.deaths and is_suspect(work.lanes.queue, work.messages[0]):
                self._handle_alone(calls, call, work)
            else:
                while self._turns.held and not self._turns.stopping and self._turns.wait_while_held():
                    pass
                self._handle(calls, call, work)

    def _handle_alone(self, calls: Calls, call: Callable[[Any], object], lane: Lane) -> None:
        queue = lane.lanes.queue
        with self._suspects.alone(lambda: self._turns.stopping or queue.revoked):
            self._handle(calls, call, lane)

    def _look(self) -> None:
        """Take until there is something to do; sleeps with the token, then hands it on behind the work."""
        while not self._turns.stopping:
            if self._turns.held and self._turns.wait_while_held():
                continue
            queues = self._turns.queues
            if self._find(queues):
                self._work.put(_LOOK)
                return
            self._turns.sleep(queues)

    def _find(self, queues: tuple[KeyOrderedQueue, ...]) -> bool:
        """Put the lanes that can go on, and those of one new batch, to the work. False when there are neither."""
        lanes = [lane for queue in queues for lane in queue.lanes.due()]
        taken = self._turns.next_batch(queues)
        if taken is not None:
            queue, batch = taken
            lanes += queue.lanes.add(batch)
        for lane in lanes:
            self._work.put(lane)
        return taken is not None or bool(lanes)

    def _handle(self, calls: Calls, call: Callable[[Any], object], lane: Lane) -> None:
        """Run a lane until it is empty, or held, or its queue has gone to another member."""
        lanes, queue, messages = lane.lanes, lane.lanes.queue, lane.messages
        turns, grant = self._turns, queue.grant
        begin, acknowledge, current = calls.running_slot.begin, grant.acknowledge, calls.current
        done = size = 0
        pause_s: float | None = None
        lane.running = True  # before the look at `revoked`: the rebalancer sets that first and then looks at this
        calls.running = 1
        calls.running_slot.serve(grant.group_queue)
        current.grant = grant
        while grant.valid and not (turns.stopping or queue.revoked):
            message = messages[0]
            calls.begun += 1
            begin(message)
            current.message = message
            pause_s = None if message.delivery_attempt == 1 else self._pause_before(grant, message)
            if pause_s is None:
                try:
                    message.check_opened()
                    if (result := copy_context().run(call, message)) is not None:
                        check_ran(result)
                    if calls.is_forked:
                        calls.leave_if_forked()
                except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler fails this message, too
                    pause_s = self._pause_after(calls, grant, message, error)
                    messages[0] = message.redelivered()
            if pause_s:
                break
            try:
                if pause_s is None:
                    taken = acknowledge(message)
                else:
                    taken = self._acknowledger.give_back(queue, [message], dead_lettered=True)
            except StoreBusy:
                taken = self._acknowledger.acknowledge(queue, message)
            if not taken:
                self._acknowledger.refused(queue)
                break
            done += 1
            size += message.size
            del messages[0]
            if not messages and lanes.is_over(lane):
                break
        calls.rest()
        lane.running = False
        calls.handled += done
        queue.count_finished(done, size)
        if pause_s:
            lanes.hold(lane, pause_s)
            self.wake()

    def _pause_after(self, calls: Calls, grant: Grant, message: ReceivedMessage, error: BaseException) -> float:
        """Count a failed attempt, and return what :meth:`Suspension.after` says."""
        calls.leave_if_forked(error)
        failed = failures_in(error)
        calls.running_slot.fail(failed)
        grant.count_failed(failed)
        self.counters.add(failed=failed)
        return self._suspension.after([message], error)

    def _pause_before(self, grant: Grant, message: ReceivedMessage) -> float | None:
        """Return what :meth:`Suspension.before` says. A dead letter is counted as failed before it is given back."""
        pause_s = self._suspension.before([message])
        if pause_s == 0:
            grant.count_failed(1)
            self.counters.add(failed=1)
        return pause_s
