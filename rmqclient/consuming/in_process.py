"""In process: the handlers of an application, in the process that asks for it.

==================================  ==================================================
in                                  write
==================================  ==================================================
a script, a test                    ``with app.running(): ...``
a notebook                          ``app.run_in_notebook()``
a web process                       ``consumer = app.start()``, and ``consumer.stop()``
an asyncio program                  ``async with app.serving(): ...``
a task of its own                   ``await app.serve()``
==================================  ==================================================

``rmq run`` and ``with app.workers(): ...`` start processes of their own instead, and restart those that die.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rmqclient.calling.hooks import CallMiddleware
from rmqclient.duration import Duration
from rmqclient.handler import Handler

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from rmqclient.consuming.push_consumer import PushConsumer


class InProcess(ABC):
    """Runs the handlers of an application in this process."""

    handlers: list[Handler]
    """What was registered so far."""

    @abstractmethod
    def _consumer(
        self,
        threads: int | None,
        client_id: str | None,
        member_name: str | None,
        loop: AbstractEventLoop | None,
        around: CallMiddleware | None = None,
    ) -> PushConsumer:
        """Return a consumer of the application, not started; ``threads`` takes the place of each handler's number."""

    def start(
        self,
        *,
        threads: int | None = None,
        client_id: str | None = None,
        member_name: str | None = None,
        loop: AbstractEventLoop | None = None,
        around: CallMiddleware | None = None,
    ) -> PushConsumer:
        """Begin to handle messages in threads of this process, and return the consumer; call its ``stop`` at the end.

        For scripts and web processes; ``rmq run`` starts processes of its own. A missing store is made. ``threads``
        takes the place of each handler's own number. ``around`` is middleware that surrounds all of the application's,
        for this consumer. The other options are those of :class:`rmqclient.PushConsumer`. Raises what that, and its
        ``start``, raise.
        """
        consumer = self._consumer(threads, client_id, member_name, loop, around)
        consumer.start()
        return consumer

    @contextmanager
    def running(
        self,
        *,
        threads: int | None = None,
        client_id: str | None = None,
        member_name: str | None = None,
        timeout: Duration = 30.0,
    ) -> Iterator[PushConsumer]:
        """Handle messages in threads of this process until the block ends, as :meth:`start`.

        The end waits for running handlers, for at most ``timeout``, a timedelta or seconds. Raises ThreadLost there if
        the process has lost a thread of the library: the consumer had ended by then.
        """
        consumer = self.start(threads=threads, client_id=client_id, member_name=member_name)
        try:
            yield consumer
        finally:
            consumer.stop(timeout)

    @asynccontextmanager
    async def serving(
        self,
        *,
        threads: int | None = None,
        client_id: str | None = None,
        member_name: str | None = None,
        timeout: Duration = 30.0,
    ) -> AsyncIterator[PushConsumer]:
        """Handle messages until the block ends, as :meth:`running`, and never block the event loop.

        ``async`` handlers and lifespans run in the loop of the caller, and can use what the program made in it. Plain
        handlers run in threads.
        """
        import asyncio  # noqa: PLC0415 - only programs with coroutines need it

        loop = asyncio.get_running_loop()
        start = partial(self.start, threads=threads, client_id=client_id, member_name=member_name, loop=loop)
        starting = loop.run_in_executor(None, start)
        try:
            yield await asyncio.shield(starting)
        finally:
            await asyncio.wait([starting])
            if starting.exception() is None:
                await asyncio.shield(loop.run_in_executor(None, starting.result().stop, timeout))

    async def serve(
        self,
        *,
        threads: int | None = None,
        client_id: str | None = None,
        member_name: str | None = None,
        timeout: Duration = 30.0,
    ) -> None:
        """Handle messages until the task is cancelled, as :meth:`serving`; until ThreadLost, which is raised."""
        import asyncio  # noqa: PLC0415 - only programs with coroutines need it

        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        serving = self.serving(threads=threads, client_id=client_id, member_name=member_name, timeout=timeout)
        async with serving as consumer:
            consumer.tell_loss(lambda: loop.call_soon_threadsafe(ended.set))
            await ended.wait()
