"""App: the handlers and schedules of one application, and the store from which they take their messages.

::

    app = App("data/store")

    @app.handler("orders", group="billing", tags="paid || refunded", threads=4)
    def bill(order: Order) -> None: ...

    @app.schedule("*/5 * * * *", topic="reports")
    def report() -> dict[str, int]: ...

Registration checks everything that can be checked without a store, so that a mistake is a traceback of the line that
made it. The store is opened when the handlers are run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rmqclient.allocation import Strategy
from rmqclient.calling.arguments import check_function
from rmqclient.calling.hooks import CallMiddleware, Hooks
from rmqclient.calling.registry import HookRegistry
from rmqclient.calling.retyped import is_retyped
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.in_process import InProcess
from rmqclient.duration import Duration
from rmqclient.errors import HandlerError
from rmqclient.failures.retry import RetryPolicy
from rmqclient.filters import Filter, filters_of
from rmqclient.filters.tag import parse_tags
from rmqclient.handler import Batch, Handler, Order, Start, is_async
from rmqclient.names import PRODUCER_GROUP, function_name
from rmqclient.place import located, shown
from rmqclient.schedules.cron import MISFIRE_GRACE, Cron, make_cron
from rmqclient.sending.producer import Producer
from rmqclient.sending.shared import SharedProducer
from rmqclient.store import StoreConfig
from rmqclient.store.numbers import check_kind
from rmqclient.tables.app_table import AppTable, AppTables

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from rmqclient.consuming.push_consumer import PushConsumer
    from rmqclient.consuming.workers import Workers
    from rmqclient.live.notebook import Live

ROOT_VARIABLE = "RMQ_STORE"

_FOR_EVER = RetryPolicy(max_retries=2**31 - 1)
"""The default of an ordered handler. [maxReconsumeTimes, of ConsumeMessageOrderlyService]"""

Function = TypeVar("Function", bound=Callable[..., Any])


class App(HookRegistry, InProcess):
    """A registry of handlers and schedules. Making one opens no store.

    ``root`` is the directory of the store, or the URL of a cluster, ``rocketmq://host:9876``; without it the
    environment variable ``RMQ_STORE`` names one of the two. ``config`` is for a store that this application creates;
    with None an existing store keeps its settings, and so does a cluster always.
    ``consumer`` says how the handlers take messages, in every worker that ``rmq run`` starts.

    Raises TypeError for other kinds of settings, and ValueError for a URL of another scheme.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        config: StoreConfig | None = None,
        consumer: ConsumerConfig | None = None,
    ) -> None:
        check_kind("config", config, StoreConfig)
        check_kind("consumer", consumer, ConsumerConfig)
        self.config = config
        self.consumer = consumer
        self.handlers: list[Handler] = []
        self.crons: list[Cron] = []
        self.hooks = Hooks()
        self._root = _located(os.fspath(root)) if root is not None else None
        self._live: Live | None = None
        self.tables = AppTables(partial(_root_or_variable, self._root))
        """The tables that were declared here, for the consumer of this application."""
        self._shared = SharedProducer(self)

    @property
    def root(self) -> Path | str:
        """The directory of the store, absolute, which need not exist; or the URL of a cluster, as text.

        Raises HandlerError if none was named.
        """
        return _root_or_variable(self._root)

    @property
    def own_root(self) -> Path | str | None:
        """The directory or the URL that the code names; None if it leaves that to ``RMQ_STORE``."""
        return self._root

    def handler(
        self,
        topic: str,
        group: str,
        *,
        tags: str | None = "*",
        filter: Filter | Sequence[Filter] | None = None,  # noqa: A002 - it reads best in a decorator
        threads: int = 1,
        coroutines: int | None = None,
        order: Order | None = None,
        batch: Batch | None = None,
        retry: RetryPolicy | None = None,
        start: Start = "earliest",
        broadcast: bool = False,
        replies: bool = False,
        allocation: str | Strategy = "averaged",
    ) -> Callable[[Function], Function]:
        """Register the decorated function for ``topic``, as part of ``group``; the function itself is unchanged.

        :class:`rmqclient.handler.Handler` explains each option. ``tags`` is an expression of
        :mod:`rmqclient.filters.tag`, such as ``"paid || refunded"``. ``filter`` is :func:`rmqclient.sql`,
        :func:`rmqclient.jmespath`, or a tuple of both; a message passes when it passes all that are given. ``retry`` is
        by default RetryPolicy(), and with ``order`` a policy that retries for ever.

        Raises InvalidName for the topic or the group, ValueError for the tags, FilterError for the filter, and
        HandlerError for an option out of its limits, options that do not go together, a function with a parameter for
        which nothing is known (:mod:`rmqclient.calling.arguments`), and a second handler of the same topic and group.
        """
        try:
            handler = Handler(
                topic=topic,
                group=group,
                tags=parse_tags(tags).expression,
                filters=filters_of(filter),
                threads=threads,
                coroutines=coroutines,
                order=order,
                batch=batch,
                retry=_policy(retry, order, broadcast=broadcast),
                start=start,
                broadcast=broadcast,
                replies=replies,
                allocation=allocation,
                function=_undecorated,
            )
        except HandlerError as error:  # whose function nobody knows yet
            raise HandlerError(f"the handler of topic {topic!r} for group {group!r}: {error}") from error

        def register(function: Function) -> Function:
            check_function(function, is_batch=batch is not None)
            new = replace(handler, function=function)
            _check_coroutines(new)
            self._forget_retyped(new)
            self._check_handler(new)
            self.handlers.append(new)
            self._tell_live()
            return function

        return register

    @contextmanager
    def override(self, *, store: str | os.PathLike[str]) -> Iterator[None]:
        """Name another store until the end of the block: a directory, or the URL of a cluster.

        For tests: :attr:`root` and the tables of the application name that store. What is open stays where it is.
        """
        before, self._root = self._root, _located(os.fspath(store))
        self.tables.read(partial(_root_or_variable, self._root))
        self._shared.close()
        try:
            yield
        finally:
            self._shared.close()
            self._root = before
            self.tables.read(partial(_root_or_variable, before))

    def include(self, other: App) -> None:
        """Add the handlers, schedules, lifespans and middleware that ``other`` has now, as if registered here.

        So an application can be written in several modules, each with an ``App()`` of its own, and run as one. The
        store and the settings are those of this application. A table of ``other`` reads this application's store in
        workers; in any other process it reads the store that ``other`` names.

        Raises HandlerError for a handler of a topic and group, and for a schedule of a topic and name, that this
        application has; then nothing was added.
        """
        for handler in other.handlers:
            self._check_handler(handler)
        for cron in other.crons:
            self._check_schedule(cron)
        self.handlers += other.handlers
        self.crons += other.crons
        self.hooks.include(other.hooks)

    def table(self, topic: str, *, value_type: Any = bytes) -> AppTable:
        """Return the present value of each key of ``topic``, as a mapping for handlers and any other importing code.

        Declare it once, where the application is made. Every process has a table of its own, which is opened when it is
        first used. :class:`rmqclient.Table` says what it holds, and what ``value_type`` can be.

        Raises InvalidName, and HandlerError for a ``value_type`` that no body can be decoded into.
        """
        return AppTable(self.tables, topic, value_type)

    def schedule(
        self,
        crontab: str | None = None,
        *,
        topic: str,
        every: Duration | None = None,
        timezone: str = "UTC",
        name: str | None = None,
        misfire_grace: Duration = MISFIRE_GRACE,
        coalesce: bool = True,
    ) -> Callable[[Function], Function]:
        """Send what the decorated function returns to ``topic`` at planned times; the function itself is unchanged.

        Each planned time has one message, however many workers run this application, and whichever of them are killed
        or restarted. The function returns the body, or a Message of this topic, or None to send nothing. It takes no
        argument, or the planned time. It may be called again for a time that has no message: let it make a message, and
        let a handler do the work.

        The planned times are those of ``crontab``, five fields as in ``crontab(5)``, in ``timezone``; or every
        ``every``, a timedelta or whole seconds, counted from 1970 in UTC. ``name``, by default the name of the
        function, and the topic identify the schedule among all applications of the store.

        A time that passed while no worker ran has its message sent late, by at most ``misfire_grace``: only the latest
        such time, or with ``coalesce=False`` all of them. So a new schedule sends a message at once if it would have
        had a time within the grace.

        Raises InvalidName for the topic or the name, HandlerError for any other option that is out of its limits, and
        HandlerError for a second schedule of that topic and name.
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
            self._forget_retyped(cron)
            self._check_schedule(cron)
            self.crons.append(cron)
            self._tell_live()
            return function

        return register

    def run_in_notebook(self, *, threads: int | None = None, timeout: Duration = 5.0) -> Live:
        """Handle messages in threads of this process, and return a view that follows them: the output of the cell.

        A handler, or a schedule, that is registered later runs at once. A cell that is run again replaces the handler
        that it defined before, which the next message meets. For that the consumer starts anew, and its lifespans with
        it; it waits for running handlers, for at most ``timeout``, a timedelta or seconds. ``stop()`` of the view ends
        it. An earlier application of this process on the same store is stopped. Raises as :meth:`start`.
        """
        from rmqclient.live.notebook import run_live  # noqa: PLC0415 - only notebooks need it

        self._live = None  # nothing is told to the one that is replaced
        self._live = run_live(self, shown(self.root), threads=threads, timeout=timeout)
        return self._live

    def workers(
        self,
        *,
        processes: int | None = None,
        timeout: Duration = 30.0,
        time_limit: Duration | None = 900.0,
        member_name: str = "worker",
    ) -> Workers:
        """Handle messages in worker processes until the block ends: ``with app.workers(processes=4): ...``.

        For handlers that no other process can import, such as those of a notebook or of the script that runs: each
        worker gets a copy of the application as it is now, with the variables that its functions use. What it changes
        there changes nothing here. Handlers of a module are better run by ``rmq run``.

        The block begins when all workers are ready: by default one for each usable CPU. One that dies, or whose handler
        takes longer than ``time_limit``, is started again as by ``rmq run``, with the same copy. The end of the block
        takes no more messages, and waits for those in flight, for at most ``timeout``; Ctrl-C ends the block, and once
        more kills the workers. Times are a timedelta or seconds. Workers are ``<member_name>-1`` and so on of
        broadcast groups. They log to standard error, at the level of the logger ``rmqclient`` here.

        Raises HandlerError, before a process starts, for what cannot be copied, with the handler and the object; and
        WorkersEnded at the begin or the end of the block when all workers have ended by themselves, with the reason.
        """
        from rmqclient.consuming.workers import Workers  # noqa: PLC0415 - it imports multiprocess and dill

        return Workers(self, processes=processes, timeout=timeout, time_limit=time_limit, member_name=member_name)

    def producer(self, *, group: str = PRODUCER_GROUP) -> Producer:
        """Return a new producer for the store of this application, with its settings and its :meth:`send_middleware`.

        In a worker, and while a consumer of this application runs, that is the store that they take messages from. It
        is opened for the producer, which goes on when they end. Make one in each process, in a :meth:`lifespan` for
        instance, and close it. Raises as a Producer.
        """
        return Producer(self.tables.root, group=group, config=self.config, middleware=self.hooks.send_middleware)

    @property
    def shared_producer(self) -> Producer:
        """The producer of this process, for code that many threads and requests run, such as that of a web application.

        It is one of :meth:`producer`, made at the first use in each process, also in a forked one, and closed with the
        process. Raises as a Producer.
        """
        return self._shared.get()

    def __getstate__(self) -> dict[str, object]:
        """Return what a copy for a worker has: a view stays here."""
        return {**vars(self), "_live": None}

    def _consumer(
        self,
        threads: int | None,
        client_id: str | None,
        member_name: str | None,
        loop: AbstractEventLoop | None,
        around: CallMiddleware | None = None,
    ) -> PushConsumer:
        from rmqclient.consuming.push_consumer import PushConsumer  # noqa: PLC0415 - who only sends needs nothing of it

        handlers = self.handlers if threads is None else [replace(each, threads=threads) for each in self.handlers]
        return PushConsumer(
            self.root,
            handlers,
            client_id=client_id,
            member_name=member_name,
            config=self.consumer,
            crons=self.crons,
            tables=self.tables,
            hooks=self.hooks if around is None else self.hooks.inside(around),
            loop=loop,
            create=True,
            store_config=self.config,
        )

    def _forget_retyped(self, new: Handler | Cron) -> None:
        """Drop what ``new`` was typed in the place of, in a notebook or at a prompt."""
        registered: list[Any] = self.handlers if isinstance(new, Handler) else self.crons
        for old in registered:
            if _identity(old) == _identity(new) and is_retyped(old.function, new.function):
                registered.remove(old)
                return

    def _tell_live(self) -> None:
        if self._live is not None:
            self._live.changed()

    def _check_handler(self, new: Handler) -> None:
        for old in self.handlers:
            if (old.topic, old.group) == (new.topic, new.group):
                raise HandlerError(_taken(old, new))

    def _check_schedule(self, new: Cron) -> None:
        if any((new.topic, new.name) == (old.topic, old.name) for old in self.crons):
            raise HandlerError(f"topic {new.topic!r} has a schedule {new.name!r} already: give another name=")

    def __repr__(self) -> str:
        return f"App({shown(self._root) if self._root else None!r}, {len(self.handlers)} handlers)"


def _identity(registered: Handler | Cron) -> tuple[str, str]:
    return registered.topic, registered.group if isinstance(registered, Handler) else registered.name


def _root_or_variable(root: Path | str | None) -> Path | str:
    found = root or _located(os.environ.get(ROOT_VARIABLE, ""))
    if found is None:
        raise HandlerError(
            f'no store is named: give the directory to App("path/to/store"), or the URL of a cluster to '
            f'App("rocketmq://host:9876"), or set the environment variable {ROOT_VARIABLE}'
        )
    return found


def _located(root: str) -> Path | str | None:
    return located(root) if root else None


def _undecorated() -> None:
    """Stands for the function of a handler whose decorator has not been applied."""


def _policy(retry: RetryPolicy | None, order: Order | None, *, broadcast: bool) -> RetryPolicy:
    if retry is None:
        return RetryPolicy() if order is None else _FOR_EVER
    if broadcast:
        raise HandlerError(
            f"broadcast=True with retry={retry!r}: leave retry out: a message whose handler raises is logged and "
            "dropped; catch the exception to try again"
        )
    return retry


def _check_coroutines(handler: Handler) -> None:
    if handler.coroutines is not None and not is_async(handler.function):
        raise HandlerError(
            f"coroutines={handler.coroutines} for {function_name(handler.function)}, which is not async: use threads"
        )


def _taken(old: Handler, new: Handler) -> str:
    text = (
        f"topic {new.topic!r} is already handled for group {new.group!r} by {function_name(old.function)}, so "
        f"{function_name(new.function)} cannot be"
    )
    for name, there, here in (
        ("tags", old.tags, new.tags),
        ("filter", "; ".join(old.filter_texts), "; ".join(new.filter_texts)),
    ):
        if there != here:
            return (
                f"{text}, and with other {name} ({there!r} there, {here!r} here): all members of a group take the "
                f"same messages; use another group, or one handler with the {name} of both"
            )
    return f"{text}: use another group, or one function that calls both"
