"""A MariaDB of the tests' own: in a directory that goes, reached by a socket in it, killed when the tests end."""

from __future__ import annotations

import importlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.host.once import Once
from tests.support.host.servers import directory_of, has_user

_START_S = 60.0
_USER = "mysql"


def why_not() -> str | None:
    """Say what is missing for these tests, None when nothing is."""
    try:
        importlib.import_module("pymysql")
    except ImportError as error:
        return f"no pymysql: {error}"
    if shutil.which("mariadbd") is None or shutil.which("mariadb-install-db") is None:
        return "no MariaDB: mariadbd and mariadb-install-db are not in PATH"
    if not has_user(_USER):
        return f"no MariaDB: it does not run as root, and there is no user {_USER}"
    return None


@contextmanager
def mariadb(once: Once) -> Iterator[str]:
    """Run a server with the database ``shop``; yield the path of its socket. Its user is ``root``.

    Its data are a copy of those that the first server of this run of pytest began with.
    """
    empty = once("mariadb", _empty_data)
    with directory_of(_USER) as (directory, user):
        data, listening = directory / "data", directory / "socket"
        subprocess.run(["cp", "-a", empty, data], check=True, timeout=_START_S)
        command = ["mariadbd", *_own(data, directory), f"--socket={listening}", "--skip-networking"]
        command.append("--innodb-flush-log-at-trx-commit=0")
        with subprocess.Popen(command, user=user, cwd=directory, stderr=subprocess.DEVNULL) as process:
            try:
                _wait_for(listening)
                yield str(listening)
            finally:
                process.kill()


def _empty_data(directory: Path) -> Path:
    with directory_of(_USER) as (making, user):
        data = making / "data"
        made = ["mariadb-install-db", *_own(data, making), "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, user=user, cwd=making, timeout=_START_S)
        return Path(shutil.move(data, directory))


def _own(data: Path, directory: Path) -> list[str]:
    return ["--no-defaults", f"--datadir={data}", f"--tmpdir={directory}"]


def _wait_for(path: Path) -> None:
    pymysql = importlib.import_module("pymysql")
    deadline = time.monotonic() + _START_S
    while not _answers(path):
        assert time.monotonic() < deadline, f"no MariaDB at {path}"
        time.sleep(0.05)
    with pymysql.connect(unix_socket=str(path), user="root") as connection:
        connection.cursor().execute("CREATE DATABASE shop CHARACTER SET utf8mb4")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as tried:
        return tried.connect_ex(str(path)) == 0
