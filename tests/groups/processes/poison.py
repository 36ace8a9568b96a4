"""Workers whose handler is killed by some of its messages.

``python -m tests.groups.processes.poison ROOT JOURNAL PROCESSES``

The bodies are ``good 17`` or another word and a number. Each word breaks the handler in its own way, until the file
JOURNAL.mended exists. The handler writes to JOURNAL, with one ``write`` each, ``begin BODY ATTEMPT`` and ``end BODY``.
It is supervised as by ``rmq run``, with shorter limits, and until SIGTERM.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from rmqclient import App, ReceivedMessage, RetryPolicy
from rmqclient.admin import Admin
from rmqclient.store import StoreConfig, open_store
from rmqclient.workers.loading import ImportedApp
from rmqclient.workers.processes import supervisor
from rmqclient.workers.processes.child import start_fork_server
from rmqclient.workers.processes.logs import configure_logging
from rmqclient.workers.processes.restart_policy import RestartPolicy
from rmqclient.workers.processes.signals import SignalPipe
from rmqclient.workers.processes.worker import Boot
from rmqclient.workers.processes.worker_life import Limits

TOPIC, GROUP = "orders", "billing"
MAX_RETRIES = 2
CONFIG = StoreConfig(commit_log_file_bytes=16 << 20)
_JOURNAL = "POISON_JOURNAL"
_ROOM_BYTES = 256 << 20
_NEVER = 1_000_000


def complain() -> None:
    """Raise."""
    raise ValueError("this message is poison")


def leave() -> None:
    """End the process without a word."""
    os._exit(3)


def segfault() -> None:
    """Touch memory that is not there."""
    ctypes.string_at(0)


def hang() -> None:
    """Never return."""
    threading.Event().wait()


def eat_memory() -> None:
    """Take memory until there is no more."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _ROOM_BYTES, resource.RLIM_INFINITY))
    eaten = []
    while True:
        eaten.append(bytearray(8 << 20))


POISONS: dict[str, Callable[[], None]] = {
    "raise": complain,
    "exit": leave,
    "abort": os.abort,
    "segfault": segfault,
    "hang": hang,
    "eat": eat_memory,
}

app = App(config=CONFIG)


@app.handler(TOPIC, group=GROUP, retry=RetryPolicy(max_retries=MAX_RETRIES, delay_levels=(1,)))
def handle(message: ReceivedMessage) -> None:
    """Do what the body says."""
    journal = Path(os.environ[_JOURNAL])
    body = message.body.decode()
    write(journal, f"begin {body} {message.delivery_attempt}\n")
    kind = body.partition(" ")[0]
    if kind in POISONS and not mended(journal).exists():
        POISONS[kind]()
    write(journal, f"end {body}\n")


def mended(journal: Path) -> Path:
    """Return the file that means that the handler was mended."""
    return journal.with_name(f"{journal.name}.mended")


def write(journal: Path, line: str) -> None:
    """Append a line that a kill cannot cut."""
    descriptor = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def main(root: Path, journal: Path, processes: int) -> int:
    """Supervise workers until SIGTERM."""
    os.environ[_JOURNAL] = str(journal)
    configure_logging("WARNING")
    restart = RestartPolicy(first_delay_s=0.05, longest_delay_s=0.2, short_lives_limit=_NEVER)
    limits = Limits(message_time_limit_s=1.0, confirm_s=0.3, abort_grace_s=0.3, restart=restart)
    boot = Boot(
        root=root,
        config=CONFIG,
        app=ImportedApp.of("tests.groups.processes.poison:app"),
        before_import=app.hooks.before_import(),
        log_level="WARNING",
    )
    start_fork_server()
    with SignalPipe(*supervisor.SIGNALS) as pipe, open_store(root, CONFIG) as store:
        pipe.install()
        Admin(store).prefer_as_housekeeper()
        return supervisor.Supervisor(store.workers(), boot, pipe, processes=processes, limits=limits).run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
