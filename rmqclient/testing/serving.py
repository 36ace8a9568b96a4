"""Serving: ``rmq serve`` as a child process of a test."""

from __future__ import annotations

import datetime
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

READY_S = 30.0
"""Within which a server has to be ready, and to end: some hundred times what it takes on an idle host."""

_ENDED_S = 1.0
"""Within which a process that has closed its standard output has ended."""

_TOP = str(Path(__file__).resolve().parents[2])
_WITH_OPTIONS = f"""
import sys
sys.path.append({_TOP!r})
from rmqclient.workers.commands.serve import serve
serve(prog_name="rmq serve")
"""
_PLAIN = f"""
import gc
import sys
gc.disable()
sys.path.append({_TOP!r})
from pathlib import Path
from rmqclient.broker.server import serve
from rmqclient.broker.address import Address
from rmqclient.broker.settings import ServeSettings
address = Address("127.0.0.1", int(sys.argv[2]))
clock_factor = 1 if sys.argv[3] == "clock" else None
settings = ServeSettings(Path(sys.argv[1]), (address,), die_with_parent=True, clock_factor=clock_factor)
serve(settings, lambda line: print(line, flush=True))
"""
# Both leave out the other commands of ``rmq``; the second one also what reads a command line. Neither collects garbage
# before it is ready: what is imported stays.


class ServerFailed(RuntimeError):
    """A server did not get ready, or did not end; the message has what it printed."""


class Server:
    """``rmq serve`` over one directory, on one port, through as many lives as a test wants.

    It dies with the process that started it.
    """

    def __init__(
        self, root: Path, log_path: Path, options: Sequence[str], *, port: int = 0, has_clock: bool = False
    ) -> None:
        self.root = root
        """The directory of its store, which local producers and workers may use meanwhile."""
        self._log_path = log_path
        self._options = tuple(options)
        self._has_clock = has_clock
        self._process: subprocess.Popen[bytes] | None = None
        self._port = port

    @property
    def address(self) -> str:
        """What a client of RocketMQ is given as the address of the name server: ``127.0.0.1:41523``."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """What an application of this library is given in place of a directory: ``rocketmq://127.0.0.1:41523``."""
        return f"rocketmq://{self.address}"

    @property
    def pid(self) -> int:
        """The process id of its present life, or of the last one. Raises ServerFailed before the first."""
        if self._process is None:
            raise ServerFailed("the server was never started")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What it has logged, in all of its lives."""
        return self._log_path.read_text(encoding="utf-8", errors="replace") if self._log_path.exists() else ""

    def start(self) -> None:
        """Start it, on the port that it had before, and return when clients can come. Raises ServerFailed."""
        command = [
            sys.executable,
            "-P",
            "-c",
            *started_by(self.root, self._port, self._options, has_clock=self._has_clock),
        ]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        try:
            ready = json.loads(_first_line(self._process))
        except ValueError as error:
            raise ServerFailed(f"rmq serve {self._how_it_failed()}:\n{self.log[-3000:]}") from error
        self._port = int(ready["name_server"].rpartition(":")[2])

    def kill(self) -> None:
        """End it as ``kill -9`` does. Nothing happens when it has ended."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def stop(self) -> None:
        """Let it answer what is under way, and end. Raises ServerFailed when it does not within 30 s."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(READY_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"rmq serve did not end within {READY_S:g} s:\n{self.log[-3000:]}") from None
        self._reap()

    def restart(self) -> None:
        """Kill it if it lives, and start it again on the same port with the same store. Raises ServerFailed."""
        self.kill()
        self.start()

    def advance(self, **time: float) -> None:
        """Move the server's clock forward: ``advance(minutes=10)``, with the names that a timedelta takes.

        The store's clock moves, for every process that has it open: delays, timers, checks of transactions, retention.
        What clients time for themselves is not moved. Raises ValueError for a negative time, and ConfigMismatch for a
        store that this block did not make: its times must be true.
        """
        from rmqclient.store import clock  # noqa: PLC0415 - tests without it need not load the store

        clock.move(self.root, datetime.timedelta(**time))

    def _how_it_failed(self) -> str:
        """Kill it, and say what it had done instead of getting ready."""
        assert self._process is not None
        try:
            code = self._process.wait(_ENDED_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"did not get ready within {READY_S:g} s"
        self._reap()
        return f"ended with {code} before it was ready"

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@contextmanager
def serve(root: str | os.PathLike[str] | None = None, *options: str) -> Iterator[Server]:
    """Run a server on a free port of the loopback address until the end of the block.

    ``root`` is the directory of its store; None for an empty one that is removed at the end. ``options`` are more
    options of ``rmq serve``. Raises ServerFailed.
    """
    with tempfile.TemporaryDirectory(prefix="rmq-", ignore_cleanup_errors=True) as scratch, _port_of_its_own() as port:
        store = Path(scratch) / "store" if root is None else Path(root)
        has_clock = root is None and not options
        server = Server(store, Path(scratch) / "serve.log", options, port=port, has_clock=has_clock)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def started_by(root: Path, port: int, options: Sequence[str], *, has_clock: bool = False) -> list[str]:
    """Return the program that is a server, and its arguments; port 0 takes a free one.

    ``has_clock``: its store is new, and gets a clock that tests move; without options only.
    """
    if not options:
        return [_PLAIN, str(root), str(port), "clock" if has_clock else ""]
    return [_WITH_OPTIONS, str(root), "--listen", f"127.0.0.1:{port}", "--die-with-parent", *options]


@contextmanager
def _port_of_its_own() -> Iterator[int]:
    """Yield a free port that nobody else is given until the end of the block, also while its server is down.

    A socket that never listens has it, too; whoever connects is refused while nobody listens.
    """
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the server may listen all the same
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    """Return the first line that a process prints; what there is of it when it ends or the time is up."""
    assert process.stdout is not None
    line, deadline = b"", time.monotonic() + READY_S
    waiting = select.poll()
    waiting.register(process.stdout, select.POLLIN)
    while not line.endswith(b"\n") and (left_s := deadline - time.monotonic()) > 0:
        if waiting.poll(left_s * 1000):
            data = os.read(process.stdout.fileno(), 4096)
            if not data:
                break
            line += data
    return line
