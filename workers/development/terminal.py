"""Terminal: what ``rmq dev`` shows on standard error, in colours where a person reads it.

``NO_COLOR`` and ``FORCE_COLOR`` count as everywhere. Each call of a handler is a line; a failure has its traceback.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from typing import Final

import click

from rmqclient.live.calls import Call

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_REMEMBERED = 1000


class Terminal(logging.Filter):
    """Shows calls, and keeps the log from telling the same failure once more; safe for threads."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._shown: deque[tuple[str, int]] = deque(maxlen=_REMEMBERED)

    def tell(self, call: Call) -> None:
        """Show a call that has ended."""
        line = f"{say_dim(call.at)} {click.style(call.where, bold=True)}  "
        if call.error is None:
            line += click.style(call.outcome, fg="green")
        else:
            self._shown.extend((each, call.attempt) for each in call.message_ids)
            line += click.style(call.outcome, fg="red", bold=True)
            line += "\n" + "\n".join(f"  {each}" for each in call.trace.splitlines())
        with self._lock:
            say(line)

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line of the log says something that is not shown yet."""
        about = getattr(record, "message_id", None), getattr(record, "attempt", None)
        return record.levelno > logging.WARNING or about not in self._shown


def log_to(terminal: Terminal, level: str) -> None:
    """Log to standard error: the lines of the application from ``level`` on, those of this package when they warn."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_TEXT, "%H:%M:%S"))
    handler.addFilter(terminal)
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("rmqclient").setLevel(max(logging.WARNING, logging.getLogger().level))


def say(text: str) -> None:
    """Write a line to standard error."""
    click.echo(text, err=True, color=_wants_colour())


def say_dim(text: str) -> str:
    """Return a text that stands behind the others."""
    return click.style(text, dim=True)


def _wants_colour() -> bool | None:
    """Return what the environment says of colours; None if standard error decides."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None
