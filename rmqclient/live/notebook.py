"""Notebook: the handlers of an application in the process of a notebook, and a view that follows them.

::

    app.run_in_notebook()        # as the last line of a cell: the view is its output

A cell that is run again replaces the handler that it defined before: the consumer is stopped and started with the new
one. So the next message runs the new code, even if it is sent in the same cell. An application that is made anew and
run on the same store replaces the earlier one.

In Jupyter the output of the cell follows the handlers. At a prompt without such outputs, ``view`` shows them as text.
"""

from __future__ import annotations

import atexit
import threading
from collections import Counter, deque
from html import escape
from typing import TYPE_CHECKING, Any

from rmqclient.consuming.in_process import InProcess
from rmqclient.duration import Duration
from rmqclient.live.calls import Call, short_name, watched_by
from rmqclient.store.threads.guarded import GuardedThread

if TYPE_CHECKING:
    from rmqclient.consuming.push_consumer import PushConsumer

SHOWN_CALLS = 10
"""The latest calls, which the view lists."""

_REFRESH_S = 0.5

_live: dict[str, Live] = {}
"""What runs in this process, by the store."""


def run_live(app: InProcess, place: str, *, threads: int | None, timeout: Duration) -> Live:
    """Start the handlers of an application, in the place of an earlier one on the same store. Raises as ``start``."""
    if place in _live:
        _live[place].stop()
    live = Live(app, place, threads=threads, timeout=timeout)
    live.restart()
    _live[place] = live
    return live


class Live:
    """The handlers of an application that run in this process, and a view of what they do.

    ``timeout`` is how long a restart, and the end, wait for running handlers. The message of one that still runs then
    is delivered again, to the new code.
    """

    def __init__(self, app: InProcess, place: str, *, threads: int | None, timeout: Duration) -> None:
        self._app = app
        self._place = place
        self._threads = threads
        self._timeout = timeout
        self._consumer: PushConsumer | None = None
        self._calls: deque[Call] = deque(maxlen=SHOWN_CALLS)
        self._handled: Counter[tuple[str, str]] = Counter()
        self._failed: Counter[tuple[str, str]] = Counter()
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._views: list[Any] = []

    @property
    def is_running(self) -> bool:
        """Whether messages are handled."""
        return self._consumer is not None

    def restart(self) -> None:
        """Run what the application has registered by now. Raises as :meth:`rmqclient.App.start`; then nothing runs."""
        self._halt()
        self._consumer = self._app.start(threads=self._threads, around=watched_by(self._see))
        atexit.register(self.stop)
        self._changed.set()

    def changed(self) -> None:
        """Run what the application has registered by now, unless :meth:`stop` was called."""
        if not self._ended.is_set():
            self.restart()

    def stop(self) -> int:
        """Take no more messages; return how many handlers still ran at the end of the time. Stopping twice is free."""
        atexit.unregister(self.stop)
        self._ended.set()
        self._changed.set()
        if _live.get(self._place) is self:
            del _live[self._place]
        return self._halt()

    def _halt(self) -> int:
        consumer, self._consumer = self._consumer, None
        return 0 if consumer is None else consumer.stop(self._timeout)

    def _see(self, call: Call) -> None:
        key = call.handler.topic, call.handler.group
        counted = self._handled if call.error is None else self._failed
        counted[key] += len(call.message_ids)
        self._calls.appendleft(call)
        self._changed.set()

    def __repr__(self) -> str:
        lines = [self._head]
        lines += [
            f"  {each.topic} -> {short_name(each)} ({each.group})  handled {self._handled[each.topic, each.group]}, "
            f"failed {self._failed[each.topic, each.group]}"
            for each in self._app.handlers
        ]
        for call in list(self._calls):
            lines += [f"{call.at} {call.where}  {call.outcome}", *(f"  {line}" for line in call.trace.splitlines())]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            _row(each.topic, short_name(each), each.group, self._handled[each.topic, each.group],
                 self._failed[each.topic, each.group])
            for each in self._app.handlers
        )  # fmt: skip
        calls = "".join(map(_shown_call, list(self._calls)))
        columns = "".join(f"<th>{name}</th>" for name in ("topic", "handler", "group", "handled", "failed"))
        return f"<b>{escape(self._head)}</b><table><tr>{columns}</tr>{rows}</table>{calls}"

    @property
    def _head(self) -> str:
        state = "running" if self.is_running else "stopped"
        waiting = "" if self._app.handlers else "; it has no handler yet"
        return f"rmq on {self._place}: {state}{waiting}"

    def _ipython_display_(self) -> None:
        """Show the view, which IPython asks for where this object is the value of a cell."""
        from IPython import get_ipython  # noqa: PLC0415 - only IPython calls this
        from IPython.display import display  # noqa: PLC0415 - the same

        if not hasattr(get_ipython(), "kernel"):  # a terminal cannot change what it has shown
            print(self)  # noqa: T201 - it is asked for
            return
        view = display(self._bundle(), raw=True, display_id=True)
        self._views.append(view)
        if len(self._views) == 1:
            GuardedThread(target=self._follow, name="rmq-live-view").start()

    def _bundle(self) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _follow(self) -> None:
        """Show what is new, twice a second at most, until the end."""
        while True:
            self._changed.wait()
            self._changed.clear()
            for view in list(self._views):
                view.update(self._bundle(), raw=True)
            if self._ended.wait(_REFRESH_S) and not self._changed.is_set():
                return


def _row(*cells: object) -> str:
    return "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>"


def _shown_call(call: Call) -> str:
    line = escape(f"{call.at} {call.where}  {call.outcome}")
    if call.error is None:
        return f"<div>{line}</div>"
    return f"<details open><summary>{line}</summary><pre>{escape(call.trace)}</pre></details>"
