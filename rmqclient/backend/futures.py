"""Futures: results for threads and for event loops."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from typing import Any, TypeVar

from rmqclient.message import SendResult
from rmqclient.store.native_threads import is_patched, threading
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

Result = TypeVar("Result")


class AwaitableFuture(Future[Result]):
    """A future of :mod:`concurrent.futures` that can also be awaited."""

    if is_patched:

        def __init__(self) -> None:
            super().__init__()
            # Otherwise made of green locks, which a thread of the library that ends the future cannot use.
            self._condition = threading.Condition()

    def __await__(self) -> Generator[Any, None, Result]:
        """Wait for the result in an event loop; a future that is done does not suspend its task."""
        if self.done():
            return self.result()
        import asyncio  # noqa: PLC0415 - takes long to import, and few need it

        return (yield from asyncio.wrap_future(self).__await__())

    def end(self, outcome: Result | Exception) -> None:
        """Set the result or the exception, unless the future was cancelled. Never raises."""
        try:
            if not self.set_running_or_notify_cancel():
                return
            if isinstance(outcome, Exception):
                self.set_exception(outcome)
            else:
                self.set_result(outcome)
        except BaseException:  # noqa: BLE001 - SystemExit of a callback would end a thread that others wait for
            _log.exception("a callback of a future failed")


class SendFuture(AwaitableFuture[SendResult]):
    """The future of :meth:`rmqclient.Producer.send_async`, with a SendResult.

    Cancelling it does not take the message back. Its callbacks run on the thread that ends it, so they should be quick.
    """
