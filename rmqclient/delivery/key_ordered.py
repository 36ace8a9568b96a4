"""Key-ordered delivery: the messages of one sharding key one after the other, different keys side by side.

Each key of a queue that has messages under way has a lane. Whoever takes a batch sorts it into lanes; a lane with
something to do is one piece of work, for one thread at a time. A message without a sharding key has a lane of its own:
nobody expects an order where no key was given.

==============  ==========================================================================================
handler         then
==============  ==========================================================================================
returns         the message is acknowledged by its bit, and the next one of its key is begun
raises          its lane is held, then the same message comes again: :mod:`rmqclient.delivery.suspension`
==============  ==========================================================================================

A held lane holds no other, up to the limits of :mod:`rmqclient.delivery.process_queue`: its messages stay in flight,
and the committed offset stays below them. With 1,000 of them, or 2,000 offsets further on, the queue gives no more;
``flow_control`` says which limit it is.

The order is kept through a rebalance, a crash and a restart. The bits tell which messages are finished; a new owner
takes all others from the committed offset on, in the order of the queue, so of one key always the oldest unfinished
one first. Nobody else handles messages of the queue then: an owner lets go when its last handler has returned, or is
dead, or its lease has run out. One that was stopped past its lease and wakes up inside of a handler goes on there; its
acknowledgement is refused, and it begins no other message of the queue.

A delivery attempt that ends in the death of the process is counted by :mod:`rmqclient.store.runtime.running`. The owner
counts the attempts that raised, and the next owner counts from 1 again: there may be as many failing keys as messages
in flight.

Work goes through one queue, made in C, from which all threads take: lanes, and the token of the one that looks for
messages. A thread that finds work takes no lock but that of the lanes, once when it has emptied one.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue as queues
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.delivery import Calls, Delivery, report_damaged
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.delivery.suspension import Suspension
from rmqclient.handler import Handler
from rmqclient.message import ReceivedMessage
from rmqclient.store import Member, MessageStore
from rmqclient.store.errors import StoreBusy

_log = logging.getLogger(__name__)


class Lane:
    """The messages of one key that are taken and not finished, the oldest first."""

    __slots__ = ("key", "lanes", "messages", "running")

    def __init__(self, lanes: Lanes, key: str | int) -> None:
        self.lanes = lanes
        self.key = key
        self.messages: list[ReceivedMessage] = []
        self.running = False
        """Whether a thread handles a message of it."""


class Lanes:
    """The lanes of one process queue. A lane is in it from its first message until it is empty."""

    def __init__(self, queue: ProcessQueue) -> None:
        self.queue = queue
        self._lock = threading.Lock()
        self._lanes: dict[str | int, Lane] = {}
        self._held: list[tuple[float, int, int, Lane]] = []
        self._count = itertools.count()

    def add(self, batch: list[ReceivedMessage]) -> list[Lane]:
        """Sort messages into lanes; return those lanes that nobody has as yet."""
        found = []
        lanes = self._lanes
        with self._lock:
            for message in batch:
                key = message.sharding_key or message.queue_offset
                lane = lanes.get(key)
                if lane is None:
                    lane = lanes[key] = Lane(self, key)
                    found.append(lane)
                lane.messages.append(message)
        return found

    def is_over(self, lane: Lane) -> bool:
        """Forget a lane that is empty; False when messages have come meanwhile."""
        with self._lock:
            if lane.messages:
                return False
            lane.running = False
            del self._lanes[lane.key]
            return True

    def hold(self, lane: Lane, pause_s: float) -> None:
        """Give the lane to nobody for a while."""
        with self._lock:
            lane.running = False
            due, first = time.monotonic() + pause_s, lane.messages[0].queue_offset
            heapq.heappush(self._held, (due, first, next(self._count), lane))

    def due(self) -> list[Lane]:
        """Return the lanes whose pause is over."""
        found: list[Lane] = []
        if self._held:
            with self._lock:
                while self._held and self._held[0][0] <= time.monotonic():
                    found.append(heapq.heappop(self._held)[-1])
        return found

    def next_due(self) -> float | None:
        """Return when, on the monotonic clock, the next pause is over."""
        with self._lock:
            return self._held[0][0] if self._held else None

    @property
    def running(self) -> bool:
        """Whether a handler runs."""
        with self._lock:
            return any(lane.running for lane in self._lanes.values())


_LOOK: Final = object()
"""The token: whoever has it looks for messages."""


class KeyOrderedDelivery(Delivery):
    """The threads of one handler in one process, which keep the order of each sharding key."""

    keeps_order = True

    def __init__(self, store: MessageStore, handler: Handler, member: Member, config: ConsumerConfig) -> None:
        super().__init__(store, handler, member, config)
        self._suspension = Suspension(handler, config, self.retries)
        self._work: queues.SimpleQueue[Lane | object | None] = queues.SimpleQueue()
        self._work.put(_LOOK)
        self._lanes: dict[ProcessQueue, Lanes] = {}

    def set_queues(self, queues: tuple[ProcessQueue, ...]) -> None:
        """Deliver from these queues from now on."""
        running = {queue: lanes for queue, lanes in self._lanes.items() if lanes.running}  # also of one that was lost
        self._lanes = running | {queue: self._lanes.get(queue) or Lanes(queue) for queue in queues}
        super().set_queues(queues)

    def stop_taking(self) -> None:
        """Begin no further message; running ones go on."""
        super().stop_taking()
        for _ in self._calls:
            self._work.put(None)

    def is_handling(self, queue: ProcessQueue) -> bool:
        """Tell whether a handler runs, or is about to run, with a message of this queue."""
        lanes = self._lanes.get(queue)
        return lanes is not None and lanes.running

    def _serve(self, calls: Calls) -> None:
        with self._invoking(self._call) as call:
            while (work := self._work.get()) is not None:
                if isinstance(work, Lane):
                    self._handle(calls, call, work)
                else:
                    self._look()

    def _look(self) -> None:
        """Take until there is something to do; sleeps with the token, then hands it on behind the work."""
        while not self._stopping:
            if self._find():
                self._work.put(_LOOK)
                return
            self._sleep(self._queues)

    def _find(self) -> bool:
        """Put the lanes that can go on, and those of one new batch, to the work. False when there was neither."""
        queues = self._queues
        lanes = self._lanes  # of these queues, or of newer ones
        due = [lane for each in lanes.values() for lane in each.due()]
        batch: list[ReceivedMessage] = []
        for step in range(len(queues)):
            queue = queues[(self._next + step) % len(queues)]
            batch = queue.take()
            if queue.grant.damaged:
                report_damaged(queue)
            if batch and queue in lanes:
                due += lanes[queue].add(batch)
                self._next += step + 1
                break
        for lane in due:
            self._work.put(lane)
        return bool(batch or due)

    def _next_due(self, queue: ProcessQueue) -> float | None:
        lanes = self._lanes.get(queue)
        due = [queue.next_due(), None if lanes is None else lanes.next_due()]
        return min((each for each in due if each is not None), default=None)

    def _handle(self, calls: Calls, call: Callable[[Any], object], lane: Lane) -> None:
        """Run a lane until it is empty, or held, or the queue is not ours any more."""
        lanes, queue, messages = lane.lanes, lane.lanes.queue, lane.messages
        grant, begin, acknowledge = queue.grant, calls.slot.begin, queue.grant.acknowledge
        done = size = 0
        pause_s: float | None = None
        lane.running = True  # before the look at `revoked`: whoever sets that looks at this afterwards
        calls.running = 1
        calls.slot.serve(queue.slot.number)
        while grant.valid and not (self._stopping or queue.revoked):
            message = messages[0]
            calls.begun += 1
            begin(message)
            pause_s = None if message.delivery_attempt == 1 else self._suspension.before([message])
            if pause_s is None:
                try:
                    message.check_opened()
                    call(message)
                except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler fails this message, too
                    with self._counting:
                        self.failed += 1
                    pause_s = self._suspension.after([message], error)
                    messages[0] = message.again()
            if pause_s:
                break
            try:
                taken = acknowledge(message)
            except StoreBusy:
                taken = self._acknowledge_late(queue, message)
            if not taken:
                self._refused(queue)
                break
            done += 1
            size += message.size
            del messages[0]
            if not messages and lanes.is_over(lane):
                break
        calls.slot.rest()
        calls.running = 0
        lane.running = False
        queue.count_finished(done, size)
        with self._counting:
            self.handled += done
        if pause_s:
            lanes.hold(lane, pause_s)
            self.wake()
