"""Event loop: where the coroutines of one consumer run.

All ``async`` handlers, lifespans and middleware of a process share one loop, so that a client or a pool that a lifespan
made can be used by every handler. It is the loop of the program that called ``await app.serve()``, or else one in a
thread of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from rmqclient.steps.ends import CutShort
from rmqclient.store.native_threads import threading
from rmqclient.store.threads.guarded import GuardedThread, lose
from rmqclient.store.threads.logs import Log

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task

_log = Log(__name__)

Result = TypeVar("Result")

LAST_WORDS_S = 1.0
"""How many seconds coroutines that are cancelled have for what they do behind it."""


class EventLoop:
    """A running loop, seen from other threads. ``given`` is a loop that runs already, and stays when this is closed."""

    def __init__(self, given: AbstractEventLoop | None = None) -> None:
        self._given = given
        self._own: AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._tasks: set[Task[Any]] = set()
        """What runs calls of handlers; a loop holds its tasks weakly."""
        self._cut_short = False
        self._closed = False

    @property
    def running(self) -> AbstractEventLoop:
        """The loop. The first use starts its thread, so that a consumer without coroutines has none."""
        if self._given is not None:
            return self._given
        with self._starting:
            if self._own is None:
                import asyncio  # noqa: PLC0415 - only programs with coroutines need it

                self._own = asyncio.new_event_loop()
                self._thread = GuardedThread(target=self._run, args=(self._own,), name="rmq-event-loop")
                self._thread.start()
            return self._own

    def wait_for(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the loop, from another thread; return its result, or raise what :meth:`end_of` returns."""
        import asyncio  # noqa: PLC0415 - only programs with coroutines need it

        async def watched() -> Result:
            task = asyncio.current_task()
            if task is not None:
                self.watch(task)
            return await coroutine

        try:
            return self.run(watched())
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler, too
            raise self.end_of(error) from error.__cause__

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine that is no call of a handler, as :meth:`wait_for`; raises what it raises."""
        import asyncio  # noqa: PLC0415 - only programs with coroutines need it

        outcome: Result | BaseException = asyncio.run_coroutine_threadsafe(_caught(coroutine), self.running).result()
        if type(outcome) is _Raised:
            raise outcome.error
        return outcome  # type: ignore[return-value]

    def watch(self, task: Task[Any]) -> None:
        """Let :meth:`cut_short` cancel the task of a call; in the loop."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end_of(self, error: BaseException) -> BaseException:
        """Return how a call ended that raised ``error``: CutShort after :meth:`cut_short`, which is no failure."""
        return CutShort() if self._cut_short else error

    def cut_short(self, timeout_s: float) -> None:
        """Cancel the calls that run, and wait for what they do behind it, for so long at most."""
        self._cut_short = True
        if not self._tasks or self.running.is_closed() or self._is_here():
            return
        import asyncio  # noqa: PLC0415 - only programs with coroutines need it

        ended = asyncio.run_coroutine_threadsafe(self._cancel(timeout_s), self.running)
        with contextlib.suppress(TimeoutError):  # a coroutine blocks the loop
            ended.result(1.25 * timeout_s)

    def _is_here(self) -> bool:
        """Tell whether the loop runs in the thread that asks, which cannot wait for it."""
        import asyncio  # noqa: PLC0415 - only programs with coroutines need it

        try:
            return asyncio.get_running_loop() is self.running
        except RuntimeError:
            return False

    async def _cancel(self, timeout_s: float) -> None:
        import asyncio  # noqa: PLC0415 - only programs with coroutines need it

        left = set(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=timeout_s)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the loop, soon. An error that leaves it is as the end of a thread."""
        self.running.call_soon_threadsafe(_guarded, function, arguments)

    def close(self, timeout_s: float | None = None) -> None:
        """End a loop of this consumer's own, and cancel what runs in it. Closing twice does nothing.

        With a timeout it is left behind when it has not ended in so many seconds: a coroutine may block it for ever.
        """
        self._closed = self._cut_short = True
        with self._starting:
            own, self._own = self._own, None
        if own is None or self._thread is None:
            return
        own.call_soon_threadsafe(own.stop)
        self._thread.join(timeout_s)

    def _run(self, loop: AbstractEventLoop) -> None:
        import asyncio  # noqa: PLC0415 - only programs with coroutines need it

        asyncio.set_event_loop(loop)
        try:
            while not self._closed:
                try:
                    loop.run_forever()
                except (SystemExit, KeyboardInterrupt) as error:  # of a task or a callback that an application started
                    _log.error("the event loop goes on after %r in a task of the application", error, exc_info=error)
        finally:
            loop.set_task_factory(None)  # one of the application may fail
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:  # its threads may still work for them, without an end
                loop.run_until_complete(asyncio.wait(left, timeout=LAST_WORDS_S))
            loop.run_until_complete(loop.shutdown_asyncgens())
            if not left:
                loop.run_until_complete(loop.shutdown_default_executor())
            asyncio.set_event_loop(None)
            loop.close()


def _guarded(function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    try:
        function(*arguments)
    except BaseException as error:  # noqa: BLE001 - the loop would log it, and nobody go on with what it left
        lose("rmq-event-loop", error)


class _Raised:
    """What a coroutine raised: SystemExit, raised inside of the loop, would end the loop and all that it runs."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _caught(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await coroutine
    except BaseException as error:  # noqa: BLE001 - for the reason above
        return _Raised(error)
