"""Answers: what the handler of requests returns, sent as the reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqclient.handler import Handler, check_ran, is_async
from rmqclient.message import ReceivedMessage
from rmqclient.sending.reply import Replier


def answering(replier: Replier, handler: Handler, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a caller that also sends the returned value as the reply; ``call`` calls the handler's function.

    It is ``async`` when the handler is. A reply that has to wait for a broker is then sent by a thread.
    """

    def answer(message: ReceivedMessage, body: object) -> None:
        check_ran(body)
        replier.answer(message, body)

    if not is_async(handler.function):
        return lambda message: answer(message, call(message))
    import asyncio  # noqa: PLC0415 - only programs with coroutines need it

    async def answer_async(message: ReceivedMessage) -> None:
        answer(message, await call(message))

    async def answer_beside(message: ReceivedMessage) -> None:
        await asyncio.to_thread(answer, message, await call(message))

    return answer_beside if replier.waits else answer_async
