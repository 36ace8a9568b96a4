"""ASGI: an application's producer, and its handlers, for the life of a web process.

::

    rmq = Lifespan(app)                     # Lifespan(app, handlers=True) runs the handlers here, too
    api = FastAPI(lifespan=rmq)             # Starlette(lifespan=rmq), Litestar(lifespan=[rmq])

    @api.post("/orders")
    async def order(order: Order, producer: Annotated[Producer, Depends(rmq.get_producer)]) -> None:
        await producer.send_async("orders", order)

Every process of the server has a producer of its own, which is made after the fork. A lifespan of the application's own
surrounds it, or is surrounded: ``async with rmq(api): ...``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from rmqclient.app import App
from rmqclient.duration import Duration
from rmqclient.errors import HandlerError
from rmqclient.sending.producer import Producer


class Lifespan:
    """What a web framework calls when its process starts, and leaves when it ends; for one application at a time.

    With ``handlers``, the process is a member of the groups of ``app`` and handles messages: in the server's own event
    loop if they are coroutines, otherwise in threads. Its end waits for running handlers, for at most ``timeout``.
    Without, the handlers are for ``rmq run``.
    """

    def __init__(self, app: App, *, handlers: bool = False, timeout: Duration = 30.0) -> None:
        self.app = app
        self._handlers = handlers
        self._timeout = timeout
        self._producer: Producer | None = None

    @property
    def producer(self) -> Producer:
        """The producer of this process; safe for threads and for the event loop. Raises HandlerError outside of a life.

        It is one of :meth:`rmqclient.App.producer`.
        """
        if self._producer is None:
            raise HandlerError(
                "the web application has not started, or has ended: give this Lifespan to it, such as "
                "FastAPI(lifespan=rmq), and in tests enter the client: with TestClient(api) as client"
            )
        return self._producer

    async def get_producer(self) -> Producer:
        """Return :attr:`producer`, as a dependency of a framework; without a thread, because it waits for nothing."""
        return self.producer

    def __call__(self, _application: object = None) -> AbstractAsyncContextManager[None]:
        """Return the life of the process. Its begin raises what opening the store and the start of handlers raise."""
        return self._live()

    @asynccontextmanager
    async def _live(self) -> AsyncIterator[None]:
        self._producer = producer = await asyncio.to_thread(self.app.producer)
        try:
            if self._handlers:
                async with self.app.serving(timeout=self._timeout):
                    yield
            else:
                yield
        finally:
            self._producer = None
            await asyncio.to_thread(producer.close)
