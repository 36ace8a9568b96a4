"""A PostgreSQL of the tests' own: in a directory that goes, reached by a socket in it, killed when the tests end."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VERSIONS = Path("/usr/lib/postgresql")
"""Where Debian has its programs, which are in no PATH."""
_START_S = 30.0


def why_not() -> str | None:
    """Say what is missing for these tests, None when nothing is."""
    try:
        importlib.import_module("psycopg")
    except ImportError as error:
        return f"no psycopg: {error}"
    if _program("initdb") is None:
        return "no PostgreSQL: initdb is neither in PATH nor in /usr/lib/postgresql"
    return None


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server; yield what to connect to."""
    with tempfile.TemporaryDirectory(prefix="rmq-pg-") as directory:
        # It refuses to run as root
        user = "postgres" if os.getuid() == 0 else None
        if user:
            shutil.chown(directory, user)
        initdb, server = _program("initdb"), _program("postgres")
        assert initdb is not None
        assert server is not None
        data = Path(directory, "data")
        made = [initdb, "-D", str(data), "-A", "trust", "-U", "tests", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, user=user, cwd=directory, timeout=60)
        command = [server, "-D", str(data), "-k", directory, "-c", "listen_addresses=", "-F"]
        with subprocess.Popen(command, user=user, cwd=directory, stderr=subprocess.DEVNULL) as process:
            try:
                name = f"host={directory} user=tests dbname=postgres"
                _wait_for(name)
                yield name
            finally:
                process.kill()


def _program(name: str) -> str | None:
    found = [str(path) for path in sorted(_VERSIONS.glob(f"*/bin/{name}"))]
    return found[-1] if found else shutil.which(name)


def _wait_for(name: str) -> None:
    psycopg = importlib.import_module("psycopg")
    deadline = time.monotonic() + _START_S
    while True:
        try:
            psycopg.connect(name).close()
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, f"no PostgreSQL at {name}"
            time.sleep(0.05)
        else:
            return
