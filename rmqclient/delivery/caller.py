"""Caller: how a thread calls the function of a handler."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rmqclient.codecs import batch_decoder_for, decoder_for, message_itself
from rmqclient.handler import Handler


def make_caller(handler: Handler) -> Callable[[Any], Any]:
    """Return a function that takes a message, or a list of messages, and calls the handler.

    The handler gets the type that its annotation asks for. The returned function is ``async`` when the handler is.
    """
    function = handler.function
    decode: Callable[[Any], object] = decoder_for(function) if handler.batch is None else batch_decoder_for(function)
    if decode is message_itself:
        return function
    if inspect.iscoroutinefunction(function):

        async def call_async(given: object) -> object:
            return await function(decode(given))

        return call_async
    return lambda given: function(decode(given))


@contextmanager
def waiting_caller(handler: Handler, function: Callable[[Any], Any]) -> Iterator[Callable[[Any], object]]:
    """Give one thread a form of ``function`` that returns when the handler has ended, also when it is a coroutine."""
    if not inspect.iscoroutinefunction(handler.function):
        yield function
        return
    with asyncio.Runner() as runner:

        def run(given: object) -> None:
            error = runner.run(_error_of(function(given)))
            if error is not None:
                raise error

        yield run


async def _error_of(coroutine: Awaitable[object]) -> BaseException | None:
    """Await a coroutine and return what it raised: a SystemExit raised inside the loop would end the loop, too."""
    try:
        await coroutine
    except BaseException as error:  # noqa: BLE001 - for the reason above
        return error
    return None
