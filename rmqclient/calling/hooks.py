"""Hooks: what an application wants run around its calls and its sends, and in each of its processes.

::

    @app.lifespan
    def pool() -> Iterator[None]:           # in each process: before its first message, and behind its last one
        with open_pool() as shop.pool:
            yield

    @app.middleware
    def timed(call: HandlerCall) -> Iterator[None]:         # around each call of a handler
        begin = time.perf_counter()
        yield
        histogram.observe(time.perf_counter() - begin)

Middleware is a generator function with one ``yield``, as ``contextlib.contextmanager`` wants it. The first that was
registered is the outermost. An exception of the handler is raised at the ``yield``: what middleware raises instead is
the failure of the message, and what it swallows is no failure. A plain generator surrounds handlers of both kinds; an
``async`` one surrounds coroutines only.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from rmqclient.calling.dependencies import Function
from rmqclient.calling.retyped import is_retyped
from rmqclient.errors import HandlerError
from rmqclient.handler import Handler, check_ran, is_async
from rmqclient.message import ReceivedMessage
from rmqclient.names import function_name
from rmqclient.sending.middleware import SendMiddleware


@dataclass(slots=True)
class HandlerCall:
    """One call of a handler, as middleware sees it."""

    handler: Handler
    """Its topic, its group, its function and its options."""
    messages: list[ReceivedMessage]
    """What it is called for: one message, or those of a batch."""
    result: Any = None
    """What the handler returned, behind the ``yield``; middleware may replace it. With ``replies=True`` it is sent."""

    @property
    def message(self) -> ReceivedMessage:
        """The message; of a batch, the first one."""
        return self.messages[0]


class HasHooks(Protocol):
    """An application."""

    hooks: Hooks


CallMiddleware: TypeAlias = Callable[[HandlerCall], Iterator[None]] | Callable[[HandlerCall], AsyncIterator[None]]
Lifespan: TypeAlias = Callable[[], Iterator[None]] | Callable[[], AsyncIterator[None]]
Occasion: TypeAlias = Callable[[], None] | Callable[[], Awaitable[None]]

Kind: TypeAlias = Literal["middleware", "send_middleware", "lifespan", "import", "startup", "shutdown"]

_GENERATORS = {"middleware": "def timed(call): ... yield ...", "lifespan": "def pool(): ... yield ..."}


@dataclass(frozen=True, slots=True)
class Hook:
    """One function, and when it runs."""

    kind: Kind
    function: Function

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise HandlerError(f"{self.kind} {self.function!r} is not a function")
        name = f"{self.kind.replace('_', ' ')} {function_name(self.function)}"
        is_generator = inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function)
        if self.kind in ("import", "startup", "shutdown") and is_generator:
            raise HandlerError(f"{name} contains `yield`, so calling it would run nothing of it: use @app.lifespan")
        if self.kind in _GENERATORS and not is_generator:
            raise HandlerError(f"{name} must contain one `yield`: write it as `{_GENERATORS[self.kind]}`")
        if self.kind == "send_middleware" and not inspect.isgeneratorfunction(self.function):
            raise HandlerError(
                f"{name} must contain one `yield` and no `async`: write it as `def stamped(sending): ... yield ...`"
            )


@dataclass(slots=True)
class Hooks:
    """What an application registered, in this order."""

    registered: list[Hook] = field(default_factory=list)
    overrides: dict[Function, Function] = field(default_factory=dict)
    """For tests: a function that takes the place of another one in ``Depends``. Read when the handlers are started."""

    def add(self, kind: Kind, function: Function) -> None:
        """Register a function, in the place of one that it was typed anew for. Raises HandlerError if it cannot be."""
        new = Hook(kind, function)
        for number, old in enumerate(self.registered):
            if old.kind == kind and _is_same_name(old.function, function) and is_retyped(old.function, function):
                self.registered[number] = new
                return
        self.registered.append(new)

    def inside(self, middleware: CallMiddleware) -> Hooks:
        """Return the same hooks with one more middleware around all calls."""
        return Hooks([Hook("middleware", middleware), *self.registered], self.overrides)

    def include(self, other: Hooks) -> None:
        """Register what another application has, and take over its overrides."""
        self.registered += other.registered
        self.overrides |= other.overrides

    def of(self, kind: Kind) -> list[Function]:
        """Return the functions of one kind."""
        return [hook.function for hook in self.registered if hook.kind == kind]

    def before_import(self) -> bytes:
        """Return the functions of ``on_import`` by their names, as a pickle for worker processes.

        Raises HandlerError for a function that no other process can import.
        """
        functions = self.of("import")
        for each in functions:
            if not _has_a_name(each):
                raise HandlerError(
                    f"{function_name(each)} runs before the handlers are imported, so it cannot come with them: put it "
                    "into a module that workers can import"
                )
        return pickle.dumps(functions)

    @property
    def send_middleware(self) -> list[SendMiddleware]:
        """What surrounds sends, the outermost first."""
        return self.of("send_middleware")

    @property
    def life(self) -> list[Hook]:
        """What runs when a process starts or ends."""
        return [hook for hook in self.registered if hook.kind in ("lifespan", "startup", "shutdown")]

    def around(self, handler: Handler, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``call`` with the middleware around it; ``call`` itself if there is none.

        ``call`` is ``async`` when the handler is; its first argument is a message, or a list of messages. Raises
        HandlerError for ``async`` middleware around a handler that is not.
        """
        middleware = self.of("middleware")
        if not middleware:
            return call
        if is_async(handler.function):
            return _async_around(handler, call, middleware)
        for each in middleware:
            if inspect.isasyncgenfunction(each):
                raise HandlerError(
                    f"middleware {function_name(each)} is async, and handler {function_name(handler.function)} is not: "
                    "write the middleware without `async`, which surrounds handlers of both kinds"
                )
        return _around(handler, call, middleware)


def _has_a_name(function: Function) -> bool:
    """Tell whether other processes can import a function."""
    try:
        pickle.dumps(function)
    except Exception:  # noqa: BLE001 - also what an object raises that is called as a function
        return False
    return getattr(function, "__module__", None) != "__main__"


def _is_same_name(old: Function, new: Function) -> bool:
    return function_name(old) == function_name(new)


def hooks_of(apps: Iterable[HasHooks]) -> Hooks:
    """Return the hooks of several applications as if one had them all."""
    hooks = Hooks()
    for app in apps:
        hooks.include(app.hooks)
    return hooks


def _around(handler: Handler, call: Callable[..., Any], middleware: list[Function]) -> Callable[..., Any]:
    managers = [contextmanager(each) for each in middleware]

    def surrounded(given: Any, *more: Any) -> object:
        about = HandlerCall(handler, given if isinstance(given, list) else [given])
        with ExitStack() as stack:
            for manager in managers:
                stack.enter_context(manager(about))
            about.result = call(given, *more)
            check_ran(about.result)
        return about.result

    return surrounded


def _async_around(handler: Handler, call: Callable[..., Any], middleware: list[Function]) -> Callable[..., Any]:
    managers: list[Any] = [
        asynccontextmanager(each) if inspect.isasyncgenfunction(each) else contextmanager(each) for each in middleware
    ]

    async def surrounded(given: Any, *more: Any) -> object:
        about = HandlerCall(handler, given if isinstance(given, list) else [given])
        async with AsyncExitStack() as stack:
            for each, manager in zip(middleware, managers, strict=True):
                if inspect.isasyncgenfunction(each):
                    await stack.enter_async_context(manager(about))
                else:
                    stack.enter_context(manager(about))
            about.result = await call(given, *more)
            check_ran(about.result)
        return about.result

    return surrounded
