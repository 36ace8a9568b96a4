"""Recorder: what handlers were called with and raised, and the failures that a test plans for them."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from rmqclient.handler import Handler, is_async
from rmqclient.names import function_name
from rmqclient.sending.producer import Producer
from rmqclient.steps.ends import StepsEnd

_SENDS = ("send", "send_async", "send_once", "send_batch", "send_buffered")


class DrainTimeout(AssertionError):
    """Handlers were still at work when the time was up; the text names them."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What happened while a test drained."""

    handled: int
    """Messages whose handler returned."""

    failed: int
    """Delivery attempts that failed."""

    dead_lettered: int
    """Messages that a group gave up."""

    errors: tuple[BaseException, ...] = ()
    """What handlers of this process raised, without the failures that the test had planned."""

    def check(self) -> None:
        """Raise the first of the errors."""
        if self.errors:
            raise self.errors[0]


class Recorder:
    """Stands around the functions of handlers, and before sends. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[Callable[..., object], list[object]] = {}
        self._planned: dict[Callable[..., object] | str, deque[BaseException]] = {}
        self._running: list[str] = []
        self._raised: list[BaseException] = []
        self._sends: dict[str, Callable[..., Any]] = {}

    def begin(self) -> None:
        """Forget what was raised before."""
        with self._lock:
            self._raised.clear()

    @property
    def raised(self) -> tuple[BaseException, ...]:
        """What handlers raised since :meth:`begin`, without planned failures."""
        return tuple(self._raised)

    @property
    def running(self) -> str:
        """The names of the handlers that run now."""
        return ", ".join(self._running)

    def calls(self, function: Callable[..., object]) -> list[object]:
        """Return the first argument of each call of a handler, those included that raised."""
        return list(self._calls.get(function, ()))

    def plan(self, target: Callable[..., object] | str, error: BaseException, times: int) -> None:
        """Let the next calls of a handler raise, or of any send (``"send"``)."""
        self._planned.setdefault(target, deque()).extend([error] * times)
        if target == "send" and not self._sends:
            for name in _SENDS:
                self._sends[name] = getattr(Producer, name)
                setattr(Producer, name, self._failing(self._sends[name]))

    def close(self) -> None:
        """Let sends be sends again."""
        while self._sends:
            setattr(Producer, *self._sends.popitem())

    def recording(self, handler: Handler) -> Handler:
        """Return a handler that records the calls of its function, and fails as planned."""
        function = handler.function

        @functools.wraps(function)
        def record(*given: Any, **named: Any) -> Any:
            with self._noted(handler, given):
                return function(*given, **named)

        @functools.wraps(function)
        async def record_async(*given: Any, **named: Any) -> Any:
            with self._noted(handler, given):
                return await function(*given, **named)

        return replace(handler, function=record_async if is_async(function) else record)

    @contextmanager
    def _noted(self, handler: Handler, given: tuple[Any, ...]) -> Iterator[None]:
        name = f"{function_name(handler.function)} of group {handler.group}"
        with self._lock:
            self._calls.setdefault(handler.function, []).append(given[0] if given else None)
            self._running.append(name)
            planned = self._next(handler.function)
        try:
            if planned is not None:
                raise planned
            yield
        except StepsEnd:  # the handler goes on later
            raise
        except BaseException as error:
            if error is not planned:
                error.add_note(f"raised by the handler {name}; kit.drain(raises=False) tells of failures instead")
                with self._lock:
                    self._raised.append(error)
            raise
        finally:
            with self._lock:
                self._running.remove(name)

    def _next(self, target: Callable[..., object] | str) -> BaseException | None:
        planned = self._planned.get(target)
        return planned.popleft() if planned else None

    def _failing(self, send: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(send)
        def fail_or_send(*given: Any, **named: Any) -> Any:
            with self._lock:
                planned = self._next("send")
            if planned is not None:
                raise planned
            return send(*given, **named)

        return fail_or_send
