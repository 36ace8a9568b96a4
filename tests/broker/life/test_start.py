"""A server is ready before what only some clients need is imported: most of its start is imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient.testing.serving import started_by

TOO_SLOW = frozenset(
    {
        "apscheduler",
        "click",
        "cryptography",
        "jmespath",
        "msgspec",
        "multiprocess",
        "multiprocessing",
        "pytest",
        "rich",
        "shutil",
        "sqlite3",
        "rmqclient.allocation",
        "rmqclient.app",
        "rmqclient.archive.archiver",
        "rmqclient.broker.access.accounts",
        "rmqclient.backend",
        "rmqclient.broker.administration.room",
        "rmqclient.cluster",
        "rmqclient.failures.retry",
        "rmqclient.filters.body",
        "rmqclient.filters.sql92",
        "rmqclient.remoting.bodies.heartbeat",
        "rmqclient.remoting.bodies.members",
        "rmqclient.remoting.bodies.settings",
        "rmqclient.remoting.bodies.stats",
        "rmqclient.replication.primary",
        "rmqclient.spark",
        "rmqclient.store.inspect",
        "rmqclient.workers",
    }
)
"""Each takes milliseconds, alone or with what it imports, and no server needs it before a client asks for it."""

TELL_MODULES = """
import gc
import rmqclient.broker.server as server
ready = server.ready_line
def modules(*arguments):
    print(*sys.modules, flush=True)
    print("collects" if gc.isenabled() and gc.get_freeze_count() else "does not collect", flush=True)
    return ready(*arguments)
server.ready_line = modules
"""


@pytest.mark.parametrize("options", [(), ("--sync",)], ids=["without options", "with an option"])
def test_a_server_is_ready_without_what_only_some_clients_need(tmp_path: Path, options: tuple[str, ...]) -> None:
    program, *arguments = started_by(tmp_path / "store", 0, options)
    command = [sys.executable, "-P", "-c", program.replace("\nfrom", f"{TELL_MODULES}\nfrom", 1), *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            imported = set(process.stdout.readline().split())
            collecting = process.stdout.readline().strip()
            assert "name_server" in process.stdout.readline()
        finally:
            process.terminate()
    assert {"rmqclient.broker.server", "rmqclient.store"} <= imported
    assert imported & TOO_SLOW <= ({"click", "rmqclient.workers", "shutil"} if options else set())
    assert collecting == "collects"
