"""The first lines of the command ``rmq``.

``rmq check`` runs before anything else is imported, because a probe starts it again and again. Every other command
is :mod:`rmqclient.workers.cli`'s.
"""

# ruff: noqa: PLC0415 - imports inside functions, for the reason above

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; leaves by ``SystemExit`` with an :class:`~rmqclient.workers.exit_codes.ExitCode`."""
    if sys.argv[1:2] == ["check"]:
        from rmqclient.workers.commands.looking.check import main as check

        sys.exit(check(sys.argv[2:]))
    from rmqclient.workers.cli import main as command_line

    command_line()
