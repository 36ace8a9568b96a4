"""App: the handlers of one application, and the store they take their messages from.

::

    app = App("data/store")

    @app.handler("orders", group="billing", tags="paid || refunded", threads=4)
    def bill(order: Order) -> None: ...

Registration checks everything that can be checked without a store, at once, so that a mistake is a traceback of the
line that made it. No store is touched before somebody runs the handlers.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from rmqclient.allocation import Strategy
from rmqclient.filters.tag import parse_tags
from rmqclient.handler import Handler, Start
from rmqclient.names import MAX_NAME_CHARACTERS, RETRY_PREFIX, check_group, check_topic
from rmqclient.retry import RetryPolicy
from store import StoreConfig
from store.errors import HandlerError

ROOT_VARIABLE = "RMQ_STORE"
MAX_THREADS = 1_000

Function = TypeVar("Function", bound=Callable[..., Any])

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_EXPECTED = "write it as `def handle(message)` or `async def handle(message)`"


class App:
    """A registry of handlers. Making one touches no store.

    ``root`` is the directory of the store; without it the environment variable ``RMQ_STORE`` names the directory.
    ``config`` matters to a store that is made by this application; None takes what the directory was made with.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None, *, config: StoreConfig | None = None) -> None:
        self.config = config
        self.handlers: list[Handler] = []
        self._root = None if root is None else _absolute(os.fspath(root))

    @property
    def root(self) -> Path:
        """The directory of the store, absolute; it need not exist. Raises HandlerError when nobody named one."""
        root = self._root or _absolute(os.environ.get(ROOT_VARIABLE, ""))
        if root is None:
            raise HandlerError(
                f'no store is named: give the directory to App("path/to/store"), '
                f"or set the environment variable {ROOT_VARIABLE}"
            )
        return root

    def handler(
        self,
        topic: str,
        *,
        group: str,
        tags: str | None = "*",
        where: str = "",
        json: str = "",
        threads: int = 1,
        ordered: bool | Literal["key"] = False,
        batch: int = 1,
        linger_ms: int = 0,
        retry: RetryPolicy | None = None,
        start: Start = "earliest",
        broadcast: bool = False,
        allocation: str | Strategy = "averaged",
    ) -> Callable[[Function], Function]:
        """Register the decorated function for ``topic``, as part of ``group``; the function itself is unchanged.

        Every group gets every message of the topic; inside a group each message goes to one process. ``tags`` is an
        expression of :mod:`rmqclient.filters.tag`. ``threads`` is 1 to 1,000 [consumeThreadMin, consumeThreadMax].

        ``retry`` says how often and when a message is delivered again that the handler could not finish, and after
        which exceptions it is a dead letter at once; by default 16 times, after 10 s, 30 s, 1 min and so on. A retry
        has the same ``message_id`` and comes from the one queue of the group's retry topic: key by the id, and not by
        the queue id.

        Raises InvalidName for the topic or the group, ValueError for the tags, and HandlerError for the number of
        threads, a function that does not take exactly one positional parameter, and a second handler of the same topic
        and group.
        """
        _check_subscription(topic, group)
        _check_threads(threads)
        _check_retry(retry)
        expression = parse_tags(tags).expression

        def register(function: Function) -> Function:
            _check_function(function)
            handler = Handler(
                topic=topic,
                group=group,
                tags=expression,
                where=where,
                json=json,
                threads=threads,
                ordered=ordered,
                batch=batch,
                linger_ms=linger_ms,
                retry=retry or RetryPolicy(),
                start=start,
                broadcast=broadcast,
                allocation=allocation,
                function=function,
            )
            self._check_alone(handler)
            self.handlers.append(handler)
            return function

        return register

    def _check_alone(self, new: Handler) -> None:
        for old in self.handlers:
            if (old.topic, old.group) == (new.topic, new.group):
                raise HandlerError(_taken(old, new))

    def __repr__(self) -> str:
        return f"App({str(self._root) if self._root else None!r}, {len(self.handlers)} handlers)"


def function_name(function: Callable[..., Any]) -> str:
    """Return ``module:qualname``, of the function inside of a ``partial`` and of the class of a callable object."""
    named = getattr(function, "func", function)
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return f"{named.__module__}:{named.__qualname__}"


def _absolute(root: str) -> Path | None:
    return Path(root).expanduser().absolute() if root else None


def _check_subscription(topic: str, group: str) -> None:
    check_topic(topic, reserved=True)
    check_group(group)
    if topic.startswith(RETRY_PREFIX):
        raise HandlerError(f"topic {topic!r}: a group takes the messages of its retry topic by itself")
    longest = MAX_NAME_CHARACTERS - len(RETRY_PREFIX)
    if len(group) > longest:
        raise HandlerError(
            f"group {group!r} has {len(group)} characters: its retry topic {RETRY_PREFIX}<group> would be longer than "
            f"{MAX_NAME_CHARACTERS}; use at most {longest}"
        )


def _check_threads(threads: object) -> None:
    if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= MAX_THREADS:
        raise HandlerError(f"threads={threads!r}: a handler has 1 to {MAX_THREADS:,} threads")


def _check_retry(retry: object) -> None:
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise HandlerError(f"retry={retry!r}: give a policy, such as RetryPolicy(max_retries=3, delay_levels=(1, 5))")


def _check_function(function: object) -> None:
    if not callable(function):
        raise HandlerError(f"{function!r} is no function: {_EXPECTED}")
    name = function_name(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise HandlerError(f"handler {name} contains `yield`, so calling it would run nothing of it: {_EXPECTED}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise HandlerError(f"handler {name} does not tell its parameters: {_EXPECTED}") from error
    if not _takes_one(signature):
        raise HandlerError(f"handler {name}{signature} must take exactly one positional parameter: {_EXPECTED}")


def _takes_one(signature: inspect.Signature) -> bool:
    parameters = list(signature.parameters.values())
    return bool(parameters) and parameters[0].kind in _POSITIONAL and all(map(_may_be_left_out, parameters[1:]))


def _may_be_left_out(parameter: inspect.Parameter) -> bool:
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
        return parameter.default is not inspect.Parameter.empty
    return parameter.kind is inspect.Parameter.VAR_KEYWORD


def _taken(old: Handler, new: Handler) -> str:
    text = (
        f"topic {new.topic!r} is already handled for group {new.group!r} by {function_name(old.function)}, so "
        f"{function_name(new.function)} cannot be"
    )
    if old.tags != new.tags:
        return (
            f"{text}, and with other tags ({old.tags!r} there, {new.tags!r} here): all members of a group take the "
            "same messages; use another group, or one handler with the tags of both"
        )
    return f"{text}: use another group, or one function that calls both"
