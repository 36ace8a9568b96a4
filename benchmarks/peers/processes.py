"""Processes: servers that end with their context, and the memory of a server with all its children.

Nothing here needs more than the standard library: the files of peers, which run in the environment of the peers, too,
import it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.machine import REPOSITORY

ENVIRONMENT = REPOSITORY / ".venv-peers"
"""The virtual environment of the peers' clients; ``debian`` in it holds unpacked packages."""
DEBIAN = ENVIRONMENT / "debian"

_READY_S = 90.0
_END_S = 20.0
_MIB = 1 << 20
_PROC = Path("/proc")


class ServerFailed(RuntimeError):
    """A server ended, or did not get ready; the message has the end of its log."""


def program(name: str) -> str:
    """Return the path of a program: in ``PATH``, or unpacked from Debian, or of PostgreSQL; empty without one."""
    if found := shutil.which(name):
        return found
    places = [DEBIAN / "usr" / "sbin" / name, DEBIAN / "usr" / "bin" / name]
    places += sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return next((str(path) for path in places if path.exists()), "")


def lacking(*programs: str) -> str:
    """Return which programs are not here, as a reason; empty if all are."""
    lost = [name for name in programs if not program(name)]
    return f"there is no {', no '.join(lost)}" if lost else ""


def version_of(*command: str) -> str:
    """Return the first number with dots that a program says of its version; empty if it says none."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=False, env=_environment(command)
        )
    except OSError:
        return ""
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return found[0] if found else ""


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@contextmanager
def server(
    command: Sequence[str],
    home: Path,
    ready: Callable[[], bool],
    *,
    user: str | None = None,
    environment: Mapping[str, str] | None = None,
    end: signal.Signals = signal.SIGKILL,
) -> Iterator[int]:
    """Run a server until the end of the block; yield its process id when ``ready`` is true. Raises ServerFailed.

    ``end`` is sent first; what has not ended then is killed with all its children. It dies with this process.
    """
    log = home / "server.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=home,
            user=user,
            env={**_environment(command), **(environment or {})},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _READY_S
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"{Path(command[0]).name} did not get ready: {_tail(log)}")
            time.sleep(0.005)
        yield process.pid
    finally:
        _end(process, end)


def listens(port: int) -> Callable[[], bool]:
    """Return a question: does somebody listen on this port?"""

    def ask() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            return False
        return True

    return ask


def memory_mib(pids: Sequence[int]) -> float:
    """Return the memory of processes and their descendants, in MiB: their own and what they share, without files.

    A page that several share is counted once. [smaps_rollup: Pss_Anon, Pss_Shmem]
    """
    return sum(_unbacked_bytes(pid) for pid in _family(pids)) / _MIB


def _environment(command: Sequence[str]) -> dict[str, str]:
    """Return ours, in which a program that was unpacked finds the libraries that were unpacked with it."""
    if not Path(command[0]).is_relative_to(DEBIAN):
        return dict(os.environ)
    places = map(str, (DEBIAN / "usr" / "lib").glob("*-linux-gnu"))
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(places)}


def _family(pids: Sequence[int]) -> set[int]:
    parents: dict[int, int] = {}
    for path in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text(errors="replace").rpartition(") ")[2].split()[1])
    family = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _unbacked_bytes(pid: int) -> int:
    with suppress(OSError):
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return 0


def _end(process: subprocess.Popen[bytes], by: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        if by is not signal.SIGKILL:
            process.send_signal(by)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace").strip().splitlines()[-5:])[-600:]
