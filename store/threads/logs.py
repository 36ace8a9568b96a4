"""Logs: lines of the library that never raise.

An application may add handlers and filters of its own to ``logging``, and they run inside of each line. What they raise
says nothing about the work that the line tells of: a message is not lost, nor a thread, because a filter failed.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from rmqclient.store.native_threads import threading
from rmqclient.store.threads.guarded import is_for_the_program


class Log:
    """The lines of one module, as those of ``logging.getLogger(name)``."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, text: str, *values: object, **options: Any) -> None:
        """Write a line at this level; the options are those of ``Logger.log``."""
        self._write(logging.DEBUG, text, values, options)

    def info(self, text: str, *values: object, **options: Any) -> None:
        """Write a line at this level."""
        self._write(logging.INFO, text, values, options)

    def warning(self, text: str, *values: object, **options: Any) -> None:
        """Write a line at this level."""
        self._write(logging.WARNING, text, values, options)

    def error(self, text: str, *values: object, **options: Any) -> None:
        """Write a line at this level."""
        self._write(logging.ERROR, text, values, options)

    def critical(self, text: str, *values: object, **options: Any) -> None:
        """Write a line at this level."""
        self._write(logging.CRITICAL, text, values, options)

    def exception(self, text: str, *values: object, **options: Any) -> None:
        """Write an error with the traceback of the exception that is handled."""
        self._write(logging.ERROR, text, values, {"exc_info": True, **options})

    def log(self, level: int, text: str, *values: object, **options: Any) -> None:
        """Write a line at a level of ``logging``."""
        self._write(level, text, values, options)

    def _write(self, level: int, text: str, values: tuple[object, ...], options: Mapping[str, Any]) -> None:
        try:
            self._logger.log(level, text, *values, stacklevel=3, **options)
        except BaseException as error:
            if is_for_the_program(error):
                raise
            _tell(error)


def _tell(error: BaseException) -> None:
    """Print why a line was not written, as ``logging`` does for a handler that fails."""
    if logging.raiseExceptions:
        with contextlib.suppress(BaseException):
            name = threading.current_thread().name
            sys.stderr.write(f"rmqclient: a line of {name} was not logged, because logging raised:\n")
            traceback.print_exception(error)
