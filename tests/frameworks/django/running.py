"""Running: the shop's server and its workers as processes, and what its database says."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]
LONG_S = 90.0


def why_not() -> str | None:
    """Say what is missing for the tests of Django, None when nothing is."""
    for names in (("django",), ("django.tasks", "django_tasks")):
        if importlib.util.find_spec("django") is None or not any(importlib.util.find_spec(name) for name in names):
            return f"no {names[-1]}: make install-all brings it"
    return None


@dataclass(frozen=True, slots=True)
class Shop:
    """One shop: where its data are, and the socket of its server if it has one: a directory for PostgreSQL."""

    data: Path
    postgresql: str | None = None
    mariadb: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What its processes are told."""
        told = {"SHOP_DATA": str(self.data), "PYTHONPATH": str(REPOSITORY)}
        servers = {"SHOP_POSTGRESQL": self.postgresql, "SHOP_MARIADB": self.mariadb}
        return os.environ | told | {name: place for name, place in servers.items() if place is not None}

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the project to its end."""
        command = [sys.executable, "-m", "examples.django_shop.manage", *arguments]
        return subprocess.run(
            command, env=self.environment, cwd=self.data, capture_output=True, text=True, timeout=LONG_S, check=False
        )

    @contextmanager
    def server(self) -> Iterator[str]:
        """Serve by gunicorn, or by Django's own server without it; yield the address. The end is a SIGKILL for all."""
        any_port, before = "127.0.0.1:0", self._said()
        command = [sys.executable, "-um", "examples.django_shop.manage", "runserver", "--noreload", any_port]
        if importlib.util.find_spec("gunicorn") is not None:
            wsgi = "examples.django_shop.wsgi:application"
            command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--bind", any_port, wsgi]
        with self._running(command):
            listening = re.compile(r"(?:Listening at:|server at) (http://127\.0\.0\.1:\d+)")
            until(lambda: listening.search(self._said(), len(before)))
            yield listening.findall(self._said())[-1]

    @contextmanager
    def workers(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run handlers, tasks and the relay; the end is a SIGKILL for all."""
        command = [sys.executable, "-m", "examples.django_shop.manage", "rmq", "run", "--processes", "1", *options]
        with self._running(command) as running:
            yield running

    @contextmanager
    def _running(self, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        log = self.data / "log"
        with log.open("ab") as said:
            running = subprocess.Popen(
                command, env=self.environment, cwd=self.data, stdout=said, stderr=said, start_new_session=True
            )
            with running:
                try:
                    yield running
                except BaseException:
                    print(self._said()[-5_000:])
                    raise
                finally:
                    os.killpg(running.pid, signal.SIGKILL)

    def _said(self) -> str:
        """Return what its processes have said."""
        log = self.data / "log"
        return log.read_text(encoding="utf-8") if log.exists() else ""

    def rows(self, statement: str) -> list[Any]:
        """Ask the database."""
        if self.mariadb is not None:
            reached = importlib.import_module("pymysql").connect(unix_socket=self.mariadb, user="root", database="shop")
            with closing(reached) as connection, connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        if self.postgresql is None:
            with closing(sqlite3.connect(self.data / "shop.db", timeout=LONG_S)) as connection:
                return connection.execute(statement).fetchall()
        connect = importlib.import_module("psycopg").connect
        with connect(host=self.postgresql, user="tests", dbname="postgres") as connection:
            return list(connection.execute(statement).fetchall())

    def remove_old(self) -> None:
        """Empty a database that another test has used."""
        if self.postgresql is not None:
            for (table,) in self.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
                self._drop(table)

    def _drop(self, table: str) -> None:
        connect = importlib.import_module("psycopg").connect
        with connect(host=self.postgresql, user="tests", dbname="postgres") as connection:
            connection.execute(f'DROP TABLE IF EXISTS "{table}" CASCADE')


def until(condition: Callable[[], object]) -> None:
    """Wait until something is true. Raises AssertionError after a long time."""
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def post(address: str, body: object) -> tuple[int, Any]:
    """Send JSON; return the status and the JSON of the answer."""
    request = urllib.request.Request(address, data=json.dumps(body).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=LONG_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
