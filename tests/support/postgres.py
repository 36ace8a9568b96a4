"""A PostgreSQL of the tests' own: in a directory that goes, reached by a socket in it, killed when the tests end."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.host.once import Once
from tests.support.host.servers import directory_of

_VERSIONS = Path("/usr/lib/postgresql")
"""Where Debian has its programs, which are in no PATH."""
_START_S = 30.0


def why_not() -> str | None:
    """Say what is missing for these tests, None when nothing is."""
    try:
        importlib.import_module("psycopg")
    except ImportError as error:
        return f"no psycopg: make install-all brings it ({error})"
    if _program("initdb") is None:
        return "no PostgreSQL: initdb is neither in PATH nor in /usr/lib/postgresql"
    return None


@contextmanager
def postgres(once: Once) -> Iterator[str]:
    """Run a server on a copy of the empty cluster of this run of pytest; yield what to connect to."""
    empty = once("postgresql", _empty_cluster)
    with directory_of("postgres") as (directory, user):
        data = directory / "data"
        subprocess.run(["cp", "-a", empty, data], check=True, timeout=_START_S)
        server = _program("postgres")
        assert server is not None
        command = [server, "-D", str(data), "-k", str(directory), "-c", "listen_addresses=", "-F"]
        with subprocess.Popen(command, user=user, cwd=directory, stderr=subprocess.DEVNULL) as process:
            try:
                name = f"host={directory} user=tests dbname=postgres"
                _wait_for(name)
                yield name
            finally:
                process.kill()


def _empty_cluster(directory: Path) -> Path:
    initdb = _program("initdb")
    assert initdb is not None
    with directory_of("postgres") as (making, user):
        data = making / "data"
        made = [initdb, "-D", str(data), "-A", "trust", "-U", "tests", "--no-sync"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, user=user, cwd=making, timeout=60)
        return Path(shutil.move(data, directory))


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
