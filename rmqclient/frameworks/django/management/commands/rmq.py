"""``manage.py rmq``: the command ``rmq`` for the store of the project, its workers, and its relay.

::

    manage.py rmq run --processes 2     the handlers and the tasks of the project, and the relay of its outbox
    manage.py rmq relay                 the relay alone
    manage.py rmq group ls              and every other command of rmq
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rmqclient.frameworks.django.application import app
from rmqclient.frameworks.django.outboxes import outbox
from rmqclient.workers.cli import rmq

TARGET = "rmqclient.frameworks.django.application:app"


class Command(BaseCommand):
    """What ``manage.py`` and ``call_command("rmq", "run")`` run."""

    help = "Run handlers and tasks (run), send what is in the outbox (relay), or anything that `rmq` does."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take every argument as it is."""
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="as of the command rmq")

    def run_from_argv(self, argv: list[str]) -> None:
        """Run from the command line, where even ``--help`` is that of ``rmq``."""
        try:
            self.handle(arguments=argv[2:])
        except CommandError as error:
            self.stderr.write(str(error))
            sys.exit(error.returncode)

    def handle(self, *, arguments: Sequence[str], **_options: Any) -> None:
        """Run a command of ``rmq``. Raises SystemExit with its exit code, and SystemCheckError."""
        given = list(arguments)
        if given[:1] in (["run"], ["relay"]):
            self.check(display_num_errors=False)
        if given[:1] == ["relay"]:
            self._relay()
            return
        if given[:1] == ["run"]:
            given.insert(1, TARGET)
        rmq.main(["--store", str(app.root), *given], prog_name="manage.py rmq")

    @staticmethod
    def _relay() -> None:
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        with outbox.relay() as relay:
            relay.run(ended)
