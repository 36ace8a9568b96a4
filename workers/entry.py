"""The first lines of the command ``rmq``.

``rmq check`` runs before anything else is imported, because a probe starts it again and again. Every other command
line is :mod:`rmqclient.workers.cli`'s.
"""

# ruff: noqa: PLC0415 - imports inside functions, for the reason above

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper

from rmqclient.workers import interrupts

_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)


def main() -> None:
    """Run the command line; leaves by ``SystemExit`` with an :class:`~rmqclient.workers.exit_codes.ExitCode`."""
    interrupts.end_quietly()
    _have_streams()
    _show_everything()
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _OF_OUTPUT:  # of a file that has a name, or of no file
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python tries once more when it ends
        if error.errno != errno.EPIPE:  # `| head` has seen enough
            sys.stderr.write(f"rmq: the output cannot be written: {error.strerror}\n")
        sys.exit(1)


def _run() -> None:
    if sys.argv[1:2] == ["check"]:
        from rmqclient.workers.probe import main as probe

        if (code := probe(sys.argv[2:])) is not None:
            sys.exit(code)
    from rmqclient.workers.cli import main as command_line

    command_line()


def _have_streams() -> None:
    """Let the standard descriptors that are closed lead nowhere.

    Else the next file that is opened gets the number, which may be one of the store, and what is meant for a person.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 - for good


def _show_everything() -> None:
    """Let no character that the terminal, or the encoding of a pipe, lacks end a command: it is shown by its number."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
