"""Dependencies: functions that make values for one call of a handler, and clean up behind it.

::

    def session() -> Iterator[Session]:
        with engine.begin() as connection:
            yield Session(connection)

    @app.handler("orders", group="billing")
    def bill(order: Order, session: Annotated[Session, Depends(session)]) -> None: ...

==============================  ========================================================================
a dependency is                 its value is
==============================  ========================================================================
a function, or a class          what it returns
an ``async`` function           what it returns; for ``async`` handlers
a generator                     what it yields; the rest runs when the call has ended
an ``async`` generator          the same; for ``async`` handlers
==============================  ========================================================================

A dependency takes the message (``ReceivedMessage``) and other dependencies. Each is made once for each call, however
many others need it. Clean-up runs in the reverse order. A generator sees the exception of the handler at its ``yield``,
as a context manager does, and should let it go on: what it swallows is no failure, and the message is acknowledged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from rmqclient.errors import HandlerError
from rmqclient.handler import is_async, is_async_generator, is_generator
from rmqclient.names import function_name

Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Depends:
    """Says in an annotation which function makes the value: ``Annotated[Session, Depends(session)]``.

    With ``cached=False`` each parameter gets a value of its own, also within one call.
    """

    function: Function
    cached: bool = True

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise HandlerError(f"Depends({self.function!r}): give a function, or a class, that makes the value")


@dataclass(frozen=True, slots=True)
class Part:
    """One argument of a call: what the handler was called with, or a dependency."""

    keyword: str | None
    """The name of a parameter that is given by name; None for one that is given by its place."""
    needed: Dependency | None
    """None stands for the message, or for the messages of a batch."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """A function and what it takes; :func:`rmqclient.calling.arguments.dependency_of` makes it."""

    function: Function
    is_cached: bool
    parts: tuple[Part, ...]

    @property
    def is_async(self) -> bool:
        """Whether only a coroutine can use it, because of itself or of what it needs."""
        own = is_async(self.function) or is_async_generator(self.function)
        return own or any(each.is_async for each in self.needed)

    @property
    def needed(self) -> Iterator[Dependency]:
        """What its parameters ask for."""
        return (part.needed for part in self.parts if part.needed is not None)

    @property
    def everything(self) -> Iterator[Dependency]:
        """This and all that is needed for it, in any depth."""
        yield self
        for each in self.needed:
            yield from each.everything


class Values:
    """The values of one call, made where a thread may wait."""

    def __init__(self, given: object, stack: ExitStack) -> None:
        self._given = given
        self._stack = stack
        self._made: dict[Function, Any] = {}

    def of(self, parts: Sequence[Part]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments by place and by name."""
        places: list[Any] = []
        names: dict[str, Any] = {}
        for part in parts:
            value = self._given if part.needed is None else self._value(part.needed)
            _put(part, value, places, names)
        return places, names

    def _value(self, dependency: Dependency) -> Any:
        function = dependency.function
        if dependency.is_cached and function in self._made:
            return self._made[function]
        places, names = self.of(dependency.parts)
        if is_generator(function):
            value = self._stack.enter_context(contextmanager(function)(*places, **names))
        else:
            value = function(*places, **names)
        self._made[function] = value
        return value


class AsyncValues:
    """The values of one call of a coroutine."""

    def __init__(self, given: object, stack: AsyncExitStack) -> None:
        self._given = given
        self._stack = stack
        self._made: dict[Function, Any] = {}

    async def of(self, parts: Sequence[Part]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments by place and by name."""
        places: list[Any] = []
        names: dict[str, Any] = {}
        for part in parts:
            value = self._given if part.needed is None else await self._value(part.needed)
            _put(part, value, places, names)
        return places, names

    async def _value(self, dependency: Dependency) -> Any:
        function = dependency.function
        if dependency.is_cached and function in self._made:
            return self._made[function]
        places, names = await self.of(dependency.parts)
        if is_async_generator(function):
            value = await self._stack.enter_async_context(asynccontextmanager(function)(*places, **names))
        elif is_generator(function):
            value = self._stack.enter_context(contextmanager(function)(*places, **names))
        else:
            value = function(*places, **names)
            if is_async(function) or inspect.iscoroutine(value):
                value = await value
        self._made[function] = value
        return value


def replaced(function: Function, overrides: Mapping[Function, Function]) -> Function:
    """Return the function that takes the place of ``function``, which a test may have named."""
    return overrides.get(function, function)


def check_sync(dependency: Dependency, handler: Function) -> None:
    """Raise HandlerError if a handler that is no coroutine needs a dependency that is one."""
    if dependency.is_async:
        raise HandlerError(
            f"handler {function_name(handler)} depends on {function_name(dependency.function)}, which is async or "
            "needs what is: write the handler as `async def`, or the dependency without `async`"
        )


def _put(part: Part, value: object, places: list[Any], names: dict[str, Any]) -> None:
    if part.keyword is None:
        places.append(value)
    else:
        names[part.keyword] = value
