"""Lifespan: what runs in a process before its first message, and behind its last one.

Start-up functions and lifespans run in the order of their registration, shutdown functions and the ends of lifespans in
the reverse order. If one fails at the start, those before it are ended, and no message is taken.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager

from rmqclient.calling.event_loop import EventLoop
from rmqclient.calling.hooks import Hook
from rmqclient.names import function_name


class ProcessLife:
    """The lifespans of one process; coroutines run in ``loop``."""

    def __init__(self, hooks: Sequence[Hook], loop: EventLoop) -> None:
        self._hooks = hooks
        self._loop = loop
        self._ends = ExitStack()

    def begin(self) -> None:
        """Run the start-up functions, and the lifespans up to their ``yield``. Raises what they raise."""
        with ExitStack() as ends:
            for hook in self._hooks:
                with _naming(hook):
                    self._begin(hook, ends)
            self._ends = ends.pop_all()

    def end(self) -> None:
        """Run the rest, each even if another one raised; raises the last error. Ending twice does nothing."""
        ends, self._ends = self._ends, ExitStack()
        ends.close()

    def _begin(self, hook: Hook, ends: ExitStack) -> None:
        function = hook.function
        if hook.kind == "startup":
            self._call(hook)
        elif hook.kind == "shutdown":
            ends.callback(self._call, hook)
        elif inspect.isasyncgenfunction(function):
            manager = asynccontextmanager(function)()
            self._loop.run(manager.__aenter__())
            ends.callback(self._leave, hook, lambda: self._loop.run(manager.__aexit__(None, None, None)))
        else:
            plain = contextmanager(function)()
            plain.__enter__()
            ends.callback(self._leave, hook, lambda: plain.__exit__(None, None, None))

    def _call(self, hook: Hook) -> None:
        with _naming(hook):
            made = hook.function()
            if inspect.iscoroutine(made):
                self._loop.run(made)

    @staticmethod
    def _leave(hook: Hook, leave: Callable[[], object]) -> None:
        with _naming(hook):
            leave()


@contextmanager
def _naming(hook: Hook) -> Iterator[None]:
    """Add to an exception which function raised it."""
    try:
        yield
    except BaseException as error:
        note = f"{hook.kind} function {function_name(hook.function)} failed"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise
