"""Handler: a function, which messages it gets, and how it gets them.

A Handler checks its options when it is made, so that a mistake is a traceback of the line that made it.

A call of its function runs it, or makes a coroutine or a generator of which nothing has run yet. A ``partial`` is what
is inside of it, and an object is its ``__call__``. A plain decorator around an ``async`` function may return the
coroutine, or run it: only the call tells.
"""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType
from typing import Any, Literal, TypeAlias

from rmqclient.allocation import Strategy, check_name, name_of
from rmqclient.codecs import python_function
from rmqclient.duration import Duration, in_seconds
from rmqclient.errors import HandlerError
from rmqclient.failures.retry import RetryPolicy
from rmqclient.filters import Filter
from rmqclient.filters.message_filter import by_kind
from rmqclient.names import MAX_NAME_CHARACTERS, RETRY_PREFIX, check_group, check_topic

MAX_THREADS = 1_000
MAX_COROUTINES = 1_000
DEFAULT_COROUTINES = 32
MAX_BATCH = 1_024
MAX_LINGER_S = 60.0

_NOT_RUN = (CoroutineType, GeneratorType, AsyncGeneratorType)

Start: TypeAlias = Literal["earliest", "latest"] | datetime.datetime
"""Where a new group begins in a queue."""

Order: TypeAlias = Literal["queue", "key"]
"""What keeps the order of its messages: each queue, or each sharding key."""


@dataclass(frozen=True, slots=True)
class Batch:
    """How a handler takes several messages in one call: as a list of messages of one queue.

    Raises HandlerError for a size below 2 or above 1,024, and for a ``linger`` above 60 seconds.
    """

    size: int
    """Most messages of one call, 2 to 1,024. [consumeMessageBatchMaxSize]"""

    linger: Duration = 0.0
    """How long a batch waits to become full, counted from its first message; 0 to 60 seconds. With 0 the handler gets
    what is there."""

    def __post_init__(self) -> None:
        if not _is_whole(self.size) or not 2 <= self.size <= MAX_BATCH:
            raise HandlerError(f"Batch({self.size!r}): the size must be a whole number from 2 to {MAX_BATCH:,}")
        try:
            in_seconds("linger", self.linger, most=MAX_LINGER_S)
        except (TypeError, ValueError) as error:
            raise HandlerError(f"Batch: {error}") from error

    @property
    def linger_s(self) -> float:
        """:attr:`linger` in seconds."""
        return in_seconds("linger", self.linger)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """One function and its options; :meth:`rmqclient.App.handler` makes it, and takes the same options.

    Raises InvalidName for the topic or the group, and HandlerError for any other option that is out of its limits, or
    that does not go with another one.
    """

    topic: str
    group: str
    """Every group gets every message of the topic that passes its filters; within a group each message goes to one
    process."""

    tags: str = "*"
    """Normalised, as :attr:`rmqclient.filters.tag.TagFilter.expression`."""

    filters: tuple[Filter, ...] = ()
    """Conditions on the properties (:func:`rmqclient.sql`) and on the JSON body (:func:`rmqclient.jmespath`). A message
    that fails one of them is acknowledged without calling the function."""

    threads: int = 1
    """How many messages one process handles at the same time, 1 to 1,000. [consumeThreadMin, consumeThreadMax]"""

    coroutines: int | None = None
    """How many coroutines of an ``async`` handler run at the same time for each thread, 1 to 1,000; 32 by default. The
    next message begins when one of them ends. With an order, or a batch, one coroutine runs for each thread."""

    order: Order | None = None
    """``"queue"`` handles the messages of each queue one at a time, in the order of the queue; the threads share the
    queues. ``"key"`` keeps the order of each sharding key, and handles different keys of a queue at the same time; a
    message without a key has no order.

    When an ordered message fails, it is delivered again in place, after a second or as :class:`rmqclient.Suspend`
    says. Meanwhile its queue, or its key, waits. By default this goes on for ever; ``retry`` sets a limit. If all
    messages of a topic need one order, give the topic one queue."""

    batch: Batch | None = None
    """Several messages in one call. The parameter is annotated ``list[Order]`` or the like, or not at all. When the
    function returns, all of them are acknowledged. When it raises, each is sent back by itself; with ``order="queue"``
    the batch comes again. A batch cannot have ``order="key"``."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    """How often and when a failed message is delivered again, and which exceptions make it a dead letter at once. By
    default 16 times, after 10 s, 30 s, 1 min and so on. A retry has the same ``message_id``, and comes from the one
    queue of the group's retry topic: identify a message by its id, not by its queue."""

    start: Start = "earliest"
    """Where a group begins that never consumed the topic: at the oldest message, at the end of every queue as it is
    when the group's first member joins, or at a time with a time zone (:mod:`rmqclient.consuming.start_position`). A
    group that has consumed the topic goes on where it was. [consumeFromWhere]"""

    broadcast: bool = False
    """Every process gets every message, once. A message whose handler raises is logged and dropped. Without retries,
    batches, and shared queues; the only order is that of ``threads=1``. :mod:`rmqclient.consuming.broadcast` gives the
    names under which the offsets are kept. [MessageModel.BROADCASTING]"""

    replies: bool = False
    """If the message is a request (:meth:`rmqclient.Producer.request`), the returned value is sent as its reply before
    the message is acknowledged; for any other message the value is dropped. A reply that cannot be encoded or stored
    makes the message fail. A batch cannot reply."""

    allocation: str | Strategy = "averaged"
    """How the members of the group share the queues: ``averaged``, ``circle``, ``hash`` or ``sticky``; a strategy of
    :mod:`rmqclient.allocation` with its settings, such as ``nearby(room_of)``; or a function of (sorted client ids,
    sorted queues) that returns the queues of each client id."""

    function: Callable[..., Any]
    """Plain or ``async``; :mod:`rmqclient.calling.arguments` says what it gets."""

    def __post_init__(self) -> None:
        _check_names(self.topic, self.group)
        if not _is_whole(self.threads) or not 1 <= self.threads <= MAX_THREADS:
            raise HandlerError(f"threads={self.threads!r}: a handler has 1 to {MAX_THREADS:,} threads")
        _check_coroutines(self.coroutines, self.order, self.batch)
        _check_order(self.order, self.retry)
        _check_batch(self.batch, self.order)
        _check_replies(self.replies, self.batch)
        _check_allocation(self.allocation)
        _check_start(self.start)
        _check_broadcast(self.broadcast)
        if self.broadcast:
            self._check_broadcast()

    @property
    def coroutine_count(self) -> int:
        """Most coroutines of one process, if the function is ``async``."""
        return self.threads * (self.coroutines or DEFAULT_COROUTINES)

    @property
    def subscription(self) -> str:
        """The options that all members of a group must share, as text: the messages, and how members share them."""
        parts = [f"tags {self.tags}", *self.filter_texts]
        parts += [f"ordered by {self.order}"] if self.order else []
        parts += ["broadcast"] if self.broadcast else []
        return "; ".join([*parts, f"allocation {name_of(self.allocation)}"])

    @property
    def filter_texts(self) -> list[str]:
        """The filters, each as text."""
        kinds = zip(("sql", "jmespath"), by_kind(self.filters), strict=True)
        return [f"{name} {each.expression!r}" for name, each in kinds if each is not None]

    def _check_broadcast(self) -> None:
        reasons: dict[str, tuple[bool, str]] = {
            "order": (
                self.order is None,
                "with threads=1 its messages come in the order of their queue, and failures hold up nothing",
            ),
            "batch": (self.batch is None, "its messages come one by one"),
            "allocation": (self.allocation == "averaged", "every member has every queue"),
        }
        for name, (is_usual, reason) in reasons.items():
            if not is_usual:
                raise HandlerError(f"broadcast=True with {name}={getattr(self, name)!r}: leave {name} out: {reason}")


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether each call of ``function`` returns something to be awaited."""
    return any(map(inspect.iscoroutinefunction, _what_runs(function)))


def hides_async(function: Callable[..., Any]) -> bool:
    """Tell whether ``function`` is plain, and decorates an ``async`` one: a call may return a coroutine."""
    return not is_async(function) and inspect.iscoroutinefunction(python_function(function))


def is_generator(function: Callable[..., Any]) -> bool:
    """Tell whether each call of ``function`` returns a plain generator."""
    return any(map(inspect.isgeneratorfunction, _what_runs(function)))


def is_async_generator(function: Callable[..., Any]) -> bool:
    """Tell whether each call of ``function`` returns an ``async`` generator."""
    return any(map(inspect.isasyncgenfunction, _what_runs(function)))


def check_ran(result: object) -> None:
    """Close a coroutine or a generator that a handler returned, and raise HandlerError: nothing of it has run."""
    if not isinstance(result, _NOT_RUN):
        return
    if not isinstance(result, AsyncGeneratorType):
        result.close()
    raise HandlerError(
        f"the handler returned {result!r}, which nobody runs, so its message is not handled: let the decorators around "
        "an `async def` be `async` themselves or use functools.wraps, and write no `yield` in a handler"
    )


def _what_runs(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return what is inside of a ``partial``, and of an object what its call runs."""
    while isinstance(function, partial):
        function = function.func
    return (function,) if isinstance(function, FunctionType) else (function, type(function).__call__)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_names(topic: str, group: str) -> None:
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


def _check_coroutines(coroutines: object, order: object, batch: object) -> None:
    if coroutines is None:
        return
    if not _is_whole(coroutines) or not 1 <= coroutines <= MAX_COROUTINES:  # type: ignore[operator]
        raise HandlerError(f"coroutines={coroutines!r}: a thread runs 1 to {MAX_COROUTINES:,} coroutines")
    if order is not None or batch is not None:
        raise HandlerError(
            f"coroutines={coroutines!r} with an order or a batch: each of its threads runs one coroutine; use threads"
        )


def _check_order(order: object, retry: object) -> None:
    if order not in (None, "queue", "key"):
        raise HandlerError(
            f'order={order!r}: use "queue" for the order of each queue, "key" for the order of each sharding key'
        )
    if not isinstance(retry, RetryPolicy):
        raise HandlerError(f"retry={retry!r}: give a policy, such as RetryPolicy(max_retries=3, delays=(1.0, 30.0))")
    if order is not None and (retry.delays or retry.delay_levels):
        raise HandlerError(
            f"retry={retry!r} with order={order!r}: an ordered message is delivered again in place, without a delay "
            "or a delay level; raise Suspend(5) for a pause of 5 seconds"
        )


def _check_batch(batch: object, order: object) -> None:
    if batch is not None and not isinstance(batch, Batch):
        raise HandlerError(f"batch={batch!r}: give a batch, such as Batch(100, linger=0.005)")
    if order == "key" and batch is not None:
        raise HandlerError(
            f'batch={batch!r} with order="key": messages of several keys cannot share a call and keep their orders; '
            'use order="queue", or leave batch out'
        )


def _check_replies(replies: object, batch: object) -> None:
    if not isinstance(replies, bool):
        raise HandlerError(f"replies={replies!r}: use True to send what the function returns as the reply")
    if replies and batch is not None:
        raise HandlerError(f"replies=True with batch={batch!r}: one value cannot answer many requests; leave batch out")


def _check_broadcast(broadcast: object) -> None:
    if not isinstance(broadcast, bool):
        raise HandlerError(f"broadcast={broadcast!r}: use True to call the function in every process")


def _check_allocation(allocation: object) -> None:
    if not isinstance(allocation, str):
        if not callable(allocation) or isinstance(allocation, type):
            raise HandlerError(f"allocation={allocation!r}: give a name, or a function of (members, queues)")
        return
    try:
        check_name(allocation)
    except ValueError as error:
        raise HandlerError(str(error)) from error


def _check_start(start: object) -> None:
    if isinstance(start, datetime.datetime):
        if start.utcoffset() is None:
            raise HandlerError(f"start={start!r} names no time zone: write datetime(..., tzinfo=UTC), or .astimezone()")
    elif start not in ("earliest", "latest"):
        raise HandlerError(
            f"start={start!r}: a new group starts at 'earliest', 'latest' or a datetime with a time zone"
        )
