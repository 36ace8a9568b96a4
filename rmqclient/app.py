"""App: the handlers and schedules of one application, and the store they take their messages from.

::

    app = App("data/store")

    @app.handler("orders", group="billing", tags="paid || refunded", threads=4)
    def bill(order: Order) -> None: ...

    @app.schedule("*/5 * * * *", topic="reports")
    def report() -> dict[str, int]: ...

Registration checks everything that can be checked without a store, at once, so that a mistake is a traceback of the
line that made it. No store is touched before somebody runs the handlers.
"""

from __future__ import annotations

import datetime
import inspect
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from rmqclient.allocation import Strategy, check_name, needs_settings
from rmqclient.consuming.start_position import check_start
from rmqclient.errors import HandlerError
from rmqclient.failures.retry import RetryPolicy
from rmqclient.filters import MessageFilter
from rmqclient.handler import Handler, Start
from rmqclient.names import MAX_NAME_CHARACTERS, RETRY_PREFIX, check_group, check_topic, function_name
from rmqclient.schedules.cron import MISFIRE_GRACE, Cron, make_cron
from rmqclient.store import StoreConfig
from rmqclient.tables.app_table import AppTable

ROOT_VARIABLE = "RMQ_STORE"
MAX_THREADS = 1_000
MAX_BATCH = 1_024
MAX_LINGER_MS = 60_000

_FOR_EVER = RetryPolicy(max_retries=2**31 - 1)
"""Of a handler whose messages keep their order. [maxReconsumeTimes, of ConsumeMessageOrderlyService]"""

Function = TypeVar("Function", bound=Callable[..., Any])

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_EXPECTED = "write it as `def handle(message)` or `async def handle(message)`"


class App:
    """A registry of handlers and schedules. Making one touches no store.

    ``root`` is the directory of the store; without it the environment variable ``RMQ_STORE`` names the directory.
    ``config`` matters to a store that is made by this application; None takes what the directory was made with.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None, *, config: StoreConfig | None = None) -> None:
        self.config = config
        self.handlers: list[Handler] = []
        self.crons: list[Cron] = []
        self._root = None if root is None else _absolute(os.fspath(root))

    @property
    def root(self) -> Path:
        """The directory of the store, absolute; it need not exist. Raises HandlerError when nobody named one."""
        return _root_or_variable(self._root)

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
        replies: bool = False,
        allocation: str | Strategy = "averaged",
    ) -> Callable[[Function], Function]:
        """Register the decorated function for ``topic``, as part of ``group``; the function itself is unchanged.

        Every group gets every message of the topic that passes its filter; inside a group each message goes to one
        process. ``tags`` is an expression of :mod:`rmqclient.filters.tag`, ``where`` is SQL92 over the properties
        (:mod:`rmqclient.filters.sql92`), ``json`` is JMESPath over the body (:mod:`rmqclient.filters.body`); a message
        passes when it passes all that are given, and is finished for the group when it does not. ``threads`` is 1 to
        1,000 [consumeThreadMin, consumeThreadMax].

        ``allocation`` says how the members of the group share the queues: ``averaged``, ``circle``, ``hash`` or
        ``sticky``, one of :mod:`rmqclient.allocation` with its settings, such as ``nearby(room_of)``, or a function of
        (sorted client ids, sorted queues) that returns the queues of each client id.

        ``ordered=True`` handles one message at a time per queue, in the order of the queue; the threads share the
        queues. ``ordered="key"`` keeps the order of each sharding key, and handles different keys of a queue side by
        side; a message without one is in no order. A message that raises is delivered again in place, after a second
        or as :class:`rmqclient.Suspend` says, and holds its queue, or its key, meanwhile: for ever, unless ``retry`` is
        given and says how often. For one order of all messages of a topic, give it one queue.

        ``batch`` above 1, up to 1,024, hands over a list of so many messages of one queue [consumeMessageBatchMaxSize],
        or of fewer when ``linger_ms``, 0 to 60,000, are over since the first one came. The parameter is annotated
        ``list[Order]`` or the like, or not at all. All are acknowledged together when the function returns. When it
        raises, each is sent back by itself; with ``ordered=True`` the batch comes again. Not with ``ordered="key"``.

        ``start`` is where a group begins that never consumed the topic: at the oldest message, at the end of every
        queue as it is when the group's first member joins, or at a time, given with its zone
        (:mod:`rmqclient.consuming.start_position`) [consumeFromWhere]. A group that has consumed goes on where it was.

        ``broadcast=True`` gives every process every message, once: a message whose handler raises is logged and
        dropped. It has no order beyond what ``threads=1`` gives, no retry, no batches, and every process takes every
        queue. See :mod:`rmqclient.consuming.broadcast` for the names under which offsets are kept
        [MessageModel.BROADCASTING].

        ``replies=True`` sends what the function returns as the reply to a message that is a request
        (:meth:`rmqclient.Producer.request`), before the message is acknowledged; what it returns for another message is
        dropped. Not with ``batch``. A reply that cannot be encoded or stored is a failure of the message.

        ``retry`` says how often and when a message is delivered again that the handler could not finish, and after
        which exceptions it is a dead letter at once; by default 16 times, after 10 s, 30 s, 1 min and so on. A retry
        has the same ``message_id`` and comes from the one queue of the group's retry topic: key by the id, and not by
        the queue id.

        Raises InvalidName for the topic or the group, ValueError for the tags, FilterError, which is a HandlerError
        with a column, for ``where`` and ``json``, and HandlerError for a number out of its limits, an allocation, a
        start or a policy that is none, options that do not go together, a function that does not take exactly one
        positional parameter, and a second handler of the same topic and group.
        """
        _check_subscription(topic, group)
        _check_threads(threads)
        _check_retry(retry)
        _check_order(ordered, retry)
        _check_batch(ordered, batch, linger_ms)
        _check_replies(replies, batch)
        _check_allocation(allocation)
        check_start(start)
        if broadcast:
            _check_broadcast(ordered=ordered, batch=batch, retry=retry, allocation=allocation)
        expression = MessageFilter(tags, where, json).tags.expression

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
                retry=retry or (_FOR_EVER if ordered else RetryPolicy()),
                start=start,
                broadcast=broadcast,
                replies=replies,
                allocation=allocation,
                function=function,
            )
            self._check_alone(handler)
            self.handlers.append(handler)
            return function

        return register

    def table(self, topic: str, *, value_type: Any = bytes) -> AppTable:
        """Return the present value of each key of ``topic``: a mapping for handlers, and whoever else imports this.

        Declare it once, where the application is made. Every process has its own, opened when it is first used there.
        :class:`rmqclient.Table` says what it holds, and what ``value_type`` can be.

        Raises InvalidName, and HandlerError for a ``value_type`` that no body can be decoded into.
        """
        return AppTable(partial(_root_or_variable, self._root), topic, value_type)

    def schedule(
        self,
        crontab: str | None = None,
        *,
        topic: str,
        every: datetime.timedelta | None = None,
        timezone: str = "UTC",
        name: str | None = None,
        misfire_grace: datetime.timedelta = MISFIRE_GRACE,
        coalesce: bool = True,
    ) -> Callable[[Function], Function]:
        """Send what the decorated function returns to ``topic`` at planned times; the function itself is unchanged.

        However many workers run this application, each time has one message, whoever of them is killed or started
        again. The function returns the body, or a Message of this topic, or None for no message. It takes nothing, or
        the planned time, and may be called more than once for a time of which no message came: let it make a message,
        and let a handler do the work.

        The times are those of ``crontab``, five fields as ``crontab(5)`` has them, in ``timezone``, or every so many
        whole seconds, counted from 1970 in UTC. ``name``, by default that of the function, and the topic identify the
        schedule among all applications of the store.

        Times that passed while nobody ran have their message sent late, by ``misfire_grace`` at most: the latest of
        them, or with ``coalesce=False`` all. So a schedule that is new sends at once what its last time within the
        grace would have been.

        Raises InvalidName for the topic or the name, and HandlerError for anything else that cannot be, and for a
        second schedule of that topic and name.
        """

        def register(function: Function) -> Function:
            cron = make_cron(
                function,
                crontab=crontab,
                every=every,
                topic=topic,
                name=name,
                timezone=timezone,
                misfire_grace=misfire_grace,
                coalesce=coalesce,
            )
            if any((cron.topic, cron.name) == (old.topic, old.name) for old in self.crons):
                raise HandlerError(f"topic {topic!r} has a schedule {cron.name!r} already: give another name=")
            self.crons.append(cron)
            return function

        return register

    def _check_alone(self, new: Handler) -> None:
        for old in self.handlers:
            if (old.topic, old.group) == (new.topic, new.group):
                raise HandlerError(_taken(old, new))

    def __repr__(self) -> str:
        return f"App({str(self._root) if self._root else None!r}, {len(self.handlers)} handlers)"


def _root_or_variable(root: Path | None) -> Path:
    found = root or _absolute(os.environ.get(ROOT_VARIABLE, ""))
    if found is None:
        raise HandlerError(
            f'no store is named: give the directory to App("path/to/store"), '
            f"or set the environment variable {ROOT_VARIABLE}"
        )
    return found


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


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise HandlerError(f"{name}={value!r}: must be a whole number from {least} to {most:,}")


def _check_order(ordered: object, retry: RetryPolicy | None) -> None:
    if not isinstance(ordered, bool) and ordered != "key":
        raise HandlerError(
            f'ordered={ordered!r}: use True for the order of each queue, "key" for that of each sharding key'
        )
    if ordered and retry is not None and retry.delay_levels:
        raise HandlerError(
            f"delay_levels={retry.delay_levels!r} with ordered={ordered!r}: a message whose order is kept is delivered "
            "again in place, without a delay level; raise Suspend(seconds) for another pause"
        )


def _check_batch(ordered: object, batch: object, linger_ms: object) -> None:
    _check_number("batch", batch, 1, MAX_BATCH)
    _check_number("linger_ms", linger_ms, 0, MAX_LINGER_MS)
    if linger_ms and batch == 1:
        raise HandlerError(
            f"linger_ms={linger_ms!r} with batch=1: there is nothing to wait for; give a batch of 2 or more"
        )
    if ordered == "key" and batch != 1:
        raise HandlerError(
            f'batch={batch!r} with ordered="key": messages of several keys cannot share a call and keep their orders; '
            "use ordered=True, or batch=1"
        )


def _check_replies(replies: object, batch: object) -> None:
    if not isinstance(replies, bool):
        raise HandlerError(f"replies={replies!r}: use True to send what the function returns as the reply")
    if replies and batch != 1:
        raise HandlerError(f"replies=True with batch={batch!r}: one value cannot answer many requests; use batch=1")


def _check_allocation(allocation: object) -> None:
    if not isinstance(allocation, str):
        if not callable(allocation) or isinstance(allocation, type):
            raise HandlerError(f"allocation={allocation!r}: give a name, or a function of (members, queues)")
        return
    try:
        check_name(allocation)
    except ValueError as error:
        raise HandlerError(str(error)) from error
    wanted = needs_settings(allocation)
    if wanted:
        raise HandlerError(f"allocation={allocation!r} needs settings: write allocation={wanted}")


def _check_broadcast(**options: object) -> None:
    """Raise HandlerError for an option that a broadcast handler cannot have."""
    reasons: dict[str, tuple[object, str]] = {
        "ordered": (
            False,
            "with threads=1 its messages come in the order of their queue, and failures hold up nothing",
        ),
        "batch": (1, "its messages come one by one"),
        "retry": (None, "a message whose handler raises is logged and dropped; catch the exception to try again"),
        "allocation": ("averaged", "every member has every queue"),
    }
    for name, (usual, reason) in reasons.items():
        if options[name] != usual:
            raise HandlerError(f"broadcast=True with {name}={options[name]!r}: leave {name} out: {reason}")


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
    for name in ("tags", "where", "json"):
        there, here = getattr(old, name), getattr(new, name)
        if there != here:
            return (
                f"{text}, and with other {name} ({there!r} there, {here!r} here): all members of a group take the "
                f"same messages; use another group, or one handler with the {name} of both"
            )
    return f"{text}: use another group, or one function that calls both"
