"""Caller: how a thread, or a coroutine, calls the function of a handler."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from rmqclient.calling.arguments import arguments_of
from rmqclient.calling.event_loop import EventLoop
from rmqclient.calling.hooks import Hooks
from rmqclient.codecs import Decoder, message_itself
from rmqclient.delivery.suspects import Suspects
from rmqclient.handler import Handler, hides_async, is_async
from rmqclient.message import ReceivedMessage


class Callers:
    """How one consumer calls its handlers: with the hooks of its application, and coroutines in one loop."""

    def __init__(self, hooks: Hooks | None = None, loop: EventLoop | None = None) -> None:
        self.hooks = hooks or Hooks()
        self.loop = loop or EventLoop()
        self.suspects = Suspects()
        """The gate for messages that may have killed a process."""

    def of(self, handler: Handler) -> Callable[[Any], Any]:
        """Return a function that takes a message, or a list of messages, and calls the handler.

        It is ``async`` when the handler is. Raises HandlerError as :func:`rmqclient.calling.arguments.arguments_of`.
        """
        return make_caller(handler, self.hooks, self.loop)

    def of_batches(
        self, handler: Handler
    ) -> tuple[Callable[[Any], object], Callable[[list[ReceivedMessage], list[object]], Any]]:
        """Return what decodes one message of a batch, and what takes messages and bodies and calls the handler."""
        function = _run(handler.function, self.loop)
        arguments = arguments_of(function, is_batch=True, overrides=self.hooks.overrides)
        return arguments.decode, self.hooks.around(handler, arguments.invoker())

    def waiting(self, handler: Handler, call: Callable[..., Any]) -> Callable[..., object]:
        """Return a form of ``call`` that returns when the handler has ended, also when it is a coroutine."""
        if not is_async(handler.function):
            return call
        loop = self.loop
        return lambda *given: loop.wait_for(call(*given))


def make_caller(handler: Handler, hooks: Hooks, loop: EventLoop) -> Callable[[Any], Any]:
    """Return a function that takes a message, or a list of messages, and calls the handler, ``async`` when that is."""
    is_batch = handler.batch is not None
    function = _run(handler.function, loop)
    arguments = arguments_of(function, is_batch=is_batch, overrides=hooks.overrides)
    is_alone = len(arguments.parts) == 1
    if is_alone and arguments.decode is message_itself:
        return hooks.around(handler, function)
    invoke = arguments.invoker()
    decode: Callable[[Any], object] = _each(arguments.decode) if is_batch else arguments.decode
    if is_async(function):

        async def call_async(given: object) -> object:
            return await invoke(given, decode(given))

        return hooks.around(handler, call_async)
    if is_alone:  # what most handlers take costs a call less
        return hooks.around(handler, lambda given: function(decode(given)))
    return hooks.around(handler, lambda given: invoke(given, decode(given)))


def _run(function: Callable[..., Any], loop: EventLoop) -> Callable[..., Any]:
    """Return what also runs the coroutine that a plain decorator returns; ``function`` itself if there is none."""
    if not hides_async(function):
        return function

    @functools.wraps(function)
    def run(*given: Any, **named: Any) -> Any:
        result = function(*given, **named)
        return loop.wait_for(result) if inspect.iscoroutine(result) else result

    return run


def _each(decode: Decoder) -> Callable[[Any], object]:
    """Return what decodes a list of messages."""
    return lambda messages: [decode(message) for message in messages]
