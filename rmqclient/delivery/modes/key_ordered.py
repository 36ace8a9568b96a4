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
from collections.abc import Iterator
from functools import partial
from typing import Final

from rmqclient.delivery.calls import Calls
from rmqclient.delivery.delivery import Delivery, Parts
from rmqclient.delivery.modes.lanes import KeyOrderedQueue, Lane
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.delivery.runner import Disposition, Hold
from rmqclient.delivery.suspects import is_suspect
from rmqclient.delivery.suspension import Suspension
from rmqclient.failures.retry import Retries
from rmqclient.message import ReceivedMessage

_LOOK: Final = object()
"""The token: the thread that has it looks for messages."""


class KeyOrderedDelivery(Delivery[KeyOrderedQueue]):
    """The threads of one handler in one process, which keep the order of each sharding key."""

    keeps_order = True
    queue_type = KeyOrderedQueue

    def __init__(self, parts: Parts, retries: Retries) -> None:
        super().__init__(parts)
        self._suspension = Suspension(self._handler, self._config, retries, self.counters)
        self._work: queues.SimpleQueue[tuple[KeyOrderedQueue, Lane] | object | None] = queues.SimpleQueue()
        self._work.put(_LOOK)

    def stop_taking(self) -> None:
        """Begin no further message; running ones go on."""
        super().stop_taking()
        for _ in self._calls:
            self._work.put(None)

    def is_handling(self, queue: KeyOrderedQueue) -> bool:
        """Tell whether a handler runs, or is about to run, with a message of this queue."""
        return queue.lanes.running

    def _serve(self, calls: Calls) -> None:
        while (work := self._work.get()) is not None:
            if not isinstance(work, tuple):
                self._look()
                continue
            queue, lane = work
            if queue.deaths and is_suspect(queue, lane.messages[0]):
                with self._suspects.alone(partial(self._is_over, queue)):
                    self._handle(calls, queue, lane)
            else:
                while self._turns.held and not self._turns.stopping and self._turns.wait_while_held():
                    pass
                self._handle(calls, queue, lane)

    def _is_over(self, queue: KeyOrderedQueue) -> bool:
        return self._turns.stopping or queue.revoked

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
        work = [(queue, lane) for queue in queues for lane in queue.lanes.due()]
        taken = self._turns.next_batch(queues)
        if taken is not None:
            queue, batch = taken
            work += [(queue, lane) for lane in queue.lanes.add(batch)]
        for each in work:
            self._work.put(each)
        return taken is not None or bool(work)

    def _handle(self, calls: Calls, queue: KeyOrderedQueue, lane: Lane) -> None:
        """Run a lane until it is empty, or held, or its queue has gone to another member."""
        lane.running = True  # before the look at `revoked`: the rebalancer sets that first and then looks at this
        begin, acknowledge, failed = partial(self._begin, calls, queue), queue.grant.acknowledge, self._suspension.after
        hold = self._runner.run(calls, queue, self._next(queue, lane), self._call, begin, acknowledge, failed)
        lane.running = False
        if hold is not None:
            lane.messages[0] = hold.messages[0]
            lane.lanes.hold(lane, hold.seconds)
            self.wake()

    def _next(self, queue: KeyOrderedQueue, lane: Lane) -> Iterator[ReceivedMessage]:
        """Yield the messages of a lane, each when the one before it is finished."""
        messages = lane.messages
        done = size = 0
        try:
            while queue.grant.valid:
                yield messages[0]
                done += 1
                size += messages[0].size
                del messages[0]
                if not messages and lane.lanes.is_over(lane):
                    break
        finally:  # also when the runner stops before the lane is over
            queue.count_finished(done, size)

    def _begin(self, calls: Calls, queue: ProcessQueue, message: ReceivedMessage) -> Hold | Disposition | None:
        """Tell what follows instead of the call; None if there is to be one."""
        calls.running_slot.begin(message)
        if message.delivery_attempt == 1 and message.unopened is None:
            return None
        return self._suspension.before(calls, queue, [message])
