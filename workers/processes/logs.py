"""Logs: how supervisors, workers and servers write their lines, as text or as JSON.

With ``json`` each line is one object: ``time`` (UTC, ms), ``level``, ``logger``, ``pid``, ``message``; ``error``, a
traceback, if there is one; ``message_id``, ``topic``, ``group`` and ``attempt`` where the line is about a message; and
what ``extra=`` of a logging call adds. What does not come from ``logging`` stays text: prints, and the stacks of a
process that crashed.
"""

from __future__ import annotations

import datetime
import json
import logging
import sys
from io import TextIOWrapper
from typing import Final, Literal

LogFormat = Literal["text", "json"]

_TEXT: Final = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"
_OF_STRANGERS: Final = ("rmqclient.broker", "rmqclient.replication", "rmqclient.remoting")
"""Loggers whose lines name what clients over the network say."""

_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(level: str | int, log_format: LogFormat = "text") -> None:
    """Log to standard error, the same way in the supervisor and in its workers, so that their lines can be told apart.

    Call it before the application is imported: then an application that configures logging itself adds to this.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter(_TEXT) if log_format == "text" else JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler])


class TextFormatter(logging.Formatter):
    """Lines of text. In those of a server, whose clients choose names and ids, nothing begins another line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        """Return the line of a record, without its traceback."""
        if record.name.startswith(_OF_STRANGERS) and not record.message.isprintable():
            record.message = "".join(map(_shown, record.message))
        return super().formatMessage(record)


def _shown(letter: str) -> str:
    """Return a letter, or how a Python text writes it if a terminal would do something with it."""
    return letter if letter.isprintable() else ascii(letter)[1:-1]


def let_prints_out() -> None:
    """Write each line that a handler prints at once, also into a file or a pipe: a kill takes what is buffered along.

    A character that the stream cannot hold is shown by its number, and ends no handler.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")


class JsonFormatter(logging.Formatter):
    """One JSON object a line. A value that is not JSON becomes its ``str``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        from rmqclient.calling.current import log_fields  # noqa: PLC0415 - a log of text needs nothing of handlers

        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        line |= log_fields()
        line |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)
