"""Coroutine delivery: messages of a queue out of order, each in a coroutine of its own.

The handler's function is ``async``. One thread takes messages and hands them to the event loop of the consumer, where a
bounded number of coroutines takes turns; when one ends, the next message begins. What becomes of a message is as in
:mod:`rmqclient.delivery.modes.concurrent`.

Each coroutine has a place of its own among the running messages, so that after a death exactly those are counted that
were running. What may wait for a mutex, a disk or a network when a call has ended is done in a thread of the loop's
executor: the loop goes on.
"""

from __future__ import annotations

import asyncio
import queue as queues
import threading
from collections.abc import Iterable
from functools import partial

from rmqclient.calling.current import Current
from rmqclient.delivery.calls import Calls
from rmqclient.delivery.delivery import Parts
from rmqclient.delivery.modes.concurrent import ConcurrentDelivery
from rmqclient.delivery.modes.concurrent_queue import ConcurrentQueue
from rmqclient.delivery.modes.send_back import StoresFailures
from rmqclient.delivery.suspects import is_suspect
from rmqclient.failures.application_errors import is_a
from rmqclient.handler import Handler
from rmqclient.message import ReceivedMessage
from rmqclient.steps.ends import CutShort
from rmqclient.store.errors import StoreBusy
from rmqclient.store.threads.guarded import GuardedThread, lose


class CoroutineDelivery(ConcurrentDelivery):
    """The coroutines of one handler in one process."""

    in_coroutines = True

    def __init__(self, parts: Parts, failures: StoresFailures) -> None:
        self._free: queues.SimpleQueue[Calls] = queues.SimpleQueue()
        super().__init__(parts, failures)

    def _call_count(self, handler: Handler) -> int:
        return handler.coroutine_count

    def _make_threads(self) -> list[threading.Thread]:
        return [GuardedThread(target=self._take_all, name=f"rmq-{self._handler.group}-takes")]

    def has_waiting(self, queues: Iterable[ConcurrentQueue]) -> bool:
        """Tell whether messages could begin if a coroutine were free, those that were taken included."""
        return super().has_waiting(queues) or any(
            queue.in_flight - len(queue.held_back()) > queue.running for queue in queues
        )

    def _relief(self) -> None:
        return None  # a message that was taken waits for any coroutine to end

    def _take_all(self) -> None:
        for calls in self._calls:
            self._free.put(calls)
        self._serve(self._calls[0])
        for _ in self._calls:
            self._free.get().running_slot.release()  # when the last coroutine has ended

    def _handle(self, _calls: Calls, queue: ConcurrentQueue, batch: list[ReceivedMessage]) -> None:
        """Begin a coroutine for each message when there is room; none if the queue is lost, or the consumer ends."""
        if len(batch) == 1 and queue.is_mixed and is_suspect(queue, batch[0]):
            self._hand_over_alone(queue, batch[0])
            return
        queue.enter()
        begun = 0
        while begun < len(batch):
            free = [self._free.get()]
            if self._turns.stopping or queue.revoked:
                self._free.put(free[0])
                break
            while len(free) < len(batch) - begun and not self._free.empty():
                free.append(self._free.get())
            for _ in free:
                queue.enter()
            self._callers.loop.call(self._begin, queue, free, batch[begun : begun + len(free)])
            begun += len(free)
        queue.leave(batch[begun:])

    def _hand_over_alone(self, queue: ConcurrentQueue, message: ReceivedMessage) -> None:
        """Run a message that a process died with while no other one runs, so that a second death is its own."""
        alone, *others = [self._free.get() for _ in self._calls]
        queue.enter()
        if self._turns.stopping or queue.revoked:
            queue.leave([message])
        else:
            self._callers.loop.call(self._begin, queue, [alone], [message])
            alone = self._free.get()
        for calls in (alone, *others):
            self._free.put(calls)

    def _begin(self, queue: ConcurrentQueue, free: list[Calls], messages: list[ReceivedMessage]) -> None:
        for calls, message in zip(free, messages, strict=True):
            coroutine = self._run_guarded(calls, queue, message)
            try:
                task = asyncio.get_running_loop().create_task(coroutine)
            except BaseException:  # of a task factory of the application
                coroutine.close()
                raise
            self._callers.loop.watch(task)
            task.add_done_callback(partial(self._begin_again, queue, calls, message))

    def _begin_again(
        self, queue: ConcurrentQueue, calls: Calls, message: ReceivedMessage, task: asyncio.Task[None]
    ) -> None:
        """Begin a message again whose task was cancelled before its first step, so that nothing of it has run."""
        if not task.cancelled():  # a task that has begun catches that
            return
        if self._turns.stopping or queue.revoked:
            queue.leave([message])
            self._free.put(calls)
        else:
            self._callers.loop.call(self._begin, queue, [calls], [message])

    async def _run_guarded(self, calls: Calls, queue: ConcurrentQueue, message: ReceivedMessage) -> None:
        """Run one; an error of our own, or one that came too late for the handler, is as the end of a thread."""
        try:
            await self._run_one(calls, queue, message)
        except BaseException as error:  # noqa: BLE001 - the task would end without a word, and keep its place
            lose(f"rmq-{self._handler.group}-coroutine", error)

    async def _run_one(self, calls: Calls, queue: ConcurrentQueue, message: ReceivedMessage) -> None:
        current = Current(self._handler.group, self._steps_factory)
        current.grant, current.given, current.running = queue.grant, message, calls.running_slot
        current.enter()
        await self._runner.run_one(calls, queue, message, self._call, self._is_acknowledged, self._has_failed)
        self._account(calls, queue, [message])
        self._free.put(calls)

    async def _has_failed(
        self, calls: Calls, queue: ConcurrentQueue, message: ReceivedMessage, error: BaseException
    ) -> None:
        end = self._callers.loop.end_of(error)
        if is_a(end, CutShort):  # the threads of the loop may have no end
            self._failed(calls, queue, [message], end)
        else:
            await asyncio.to_thread(self._failed, calls, queue, [message], end)

    async def _is_acknowledged(self, calls: Calls, queue: ConcurrentQueue, message: ReceivedMessage) -> bool:
        try:
            if queue.grant.acknowledge(message):
                return True
        except StoreBusy:
            pass
        return await asyncio.to_thread(self._acknowledger.acknowledge_all, queue, [message], calls.running_slot)
