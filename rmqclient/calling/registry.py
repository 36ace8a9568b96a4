"""Registry: the decorators by which an application registers its hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rmqclient.calling.dependencies import Function
from rmqclient.calling.hooks import CallMiddleware, Hooks, Kind, Lifespan, Occasion
from rmqclient.sending.middleware import SendMiddleware

Around = TypeVar("Around", bound=CallMiddleware)
AroundSend = TypeVar("AroundSend", bound=SendMiddleware)
Life = TypeVar("Life", bound=Lifespan)
Event = TypeVar("Event", bound=Occasion)
Setup = TypeVar("Setup", bound=Callable[[], object])


class HookRegistry:
    """What an application registers beside its handlers. Each decorator returns the function itself."""

    hooks: Hooks
    """What was registered, and the functions that tests put in the place of dependencies."""

    def _tell_live(self) -> None:
        """Let a view that runs the application follow what was registered."""

    def _hook(self, kind: Kind, function: Function) -> None:
        self.hooks.add(kind, function)
        self._tell_live()

    def lifespan(self, function: Life) -> Life:
        """Run a generator function around the life of each process that handles messages; it has one ``yield``.

        What stands before the ``yield`` runs before the first message, and after a worker was forked: make pools and
        clients there. The rest runs behind the last message. ``async`` ones run in the loop of the ``async`` handlers.
        Lifespans and :meth:`on_startup` run in the order of their registration, and end in the reverse order. If one
        raises at the start, the process takes no message. Raises HandlerError for a function without ``yield``.
        """
        self._hook("lifespan", function)
        return function

    def on_import(self, function: Setup) -> Setup:
        """Run a plain function in each worker before it imports the target, such as ``app.on_import(django.setup)``.

        It has run in the process that starts the workers, or that process could not have imported the handlers: there
        it is not called. It must stand in a module that workers can import, or HandlerError is raised when they are
        started.
        """
        self.hooks.add("import", function)
        return function

    def on_startup(self, function: Event) -> Event:
        """Run a function, plain or ``async``, in each process before its first message, as :meth:`lifespan` says."""
        self._hook("startup", function)
        return function

    def on_shutdown(self, function: Event) -> Event:
        """Run a function, plain or ``async``, in each process behind its last message, as :meth:`lifespan` says."""
        self._hook("shutdown", function)
        return function

    def middleware(self, function: Around) -> Around:
        """Run a generator function of one :class:`rmqclient.HandlerCall` around each call of each handler.

        It has one ``yield``, where the handler is called; :mod:`rmqclient.calling.hooks` says what it may do. The first
        that was registered is the outermost. Raises HandlerError for a function without ``yield``.
        """
        self._hook("middleware", function)
        return function

    def send_middleware(self, function: AroundSend) -> AroundSend:
        """Run a generator function of one :class:`rmqclient.Sending` around each send of :meth:`producer`.

        It has one ``yield``, where the messages are sent; :mod:`rmqclient.sending.middleware` says what it may do. The
        messages of schedules pass it, too. Raises HandlerError for a function without ``yield``, or an ``async`` one.
        """
        self._hook("send_middleware", function)
        return function
