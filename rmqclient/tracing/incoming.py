"""Incoming: the calls of a handler, and what a program pulls, seen by observers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeAlias

from rmqclient.backend.pull_result import PullResult
from rmqclient.filters.tag import TagFilter
from rmqclient.handler import Handler, is_async
from rmqclient.message import ReceivedMessage
from rmqclient.steps.ends import StepsEnd
from rmqclient.store import MessageQueue
from rmqclient.store.threads.logs import Log
from rmqclient.tracing.observers import Observer

_log = Log(__name__)

Call: TypeAlias = Callable[[Any], Any]
Read: TypeAlias = Callable[[MessageQueue, int, int, TagFilter], PullResult]
"""Reads from a queue, from an offset on, so many messages that are wanted."""


def observed(
    handler: Handler, call: Call, observers: Sequence[Observer], messages_of: Callable[[Any], Sequence[ReceivedMessage]]
) -> Call:
    """Return a form of ``call`` whose runs the observers see; ``call`` itself when there are none.

    ``messages_of`` returns the messages of what ``call`` is given. The returned function is ``async`` when the handler
    is, so what an observer sets in the context reaches the handler's coroutine and no other one.
    """
    for observer in observers:
        call = _seen_by(observer, handler, call, messages_of)
    return call


def observed_read(read: Read, group: str, observers: Sequence[Observer]) -> Read:
    """Return a form of ``read`` of which the observers see what it brings; ``read`` itself when there are none."""
    if not observers:
        return read

    def seen(queue: MessageQueue, offset: int, limit: int, wanted: TagFilter) -> PullResult:
        begun_ns = time.time_ns()
        result = read(queue, offset, limit, wanted)
        for observer in observers if result.messages else ():
            try:
                observer.receive(group, result.messages, begun_ns)
            except Exception:  # noqa: BLE001 - what looks at a message must not make it fail
                _log.exception("group %s: a pull from %s is not traced", group, queue)
        return result

    return seen


def _seen_by(
    observer: Observer, handler: Handler, call: Call, messages_of: Callable[[Any], Sequence[ReceivedMessage]]
) -> Call:
    if is_async(handler.function):

        async def call_async(given: object) -> object:
            with _Watched(observer, handler, messages_of(given)):
                return await call(given)

        return call_async

    def call_plain(given: object) -> object:
        with _Watched(observer, handler, messages_of(given)):
            return call(given)

    return call_plain


class _Watched:
    """A call that an observer sees. An observer that fails is reported, and the call goes on without it."""

    def __init__(self, observer: Observer, handler: Handler, messages: Sequence[ReceivedMessage]) -> None:
        self._observer = observer
        self._handler = handler
        self._messages = messages
        self._watching: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        try:
            watching = self._observer.process(self._handler, self._messages)
            watching.__enter__()
            self._watching = watching
        except Exception:  # noqa: BLE001 - what looks at a message must not make it fail
            _log.exception("group %s: a call of its handler is not traced", self._handler.group)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watching is None:
            return
        if isinstance(error, StepsEnd):  # the call has not failed: it goes on later
            kind = error = trace = None
        try:
            self._watching.__exit__(kind, error, trace)
        except Exception as raised:  # noqa: BLE001 - for the reason above
            if raised is not error:
                _log.exception("group %s: the end of a call of its handler is not traced", self._handler.group)
