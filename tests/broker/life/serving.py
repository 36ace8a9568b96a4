"""``rmq serve`` as a process, with whatever options a test wants, and callers of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqclient.broker.address import Address
from tests.broker.net.loopback import PATIENCE_S

TOP = Path(__file__).parents[3]


class Serving:
    """A server process. ``ready`` is its first line."""

    def __init__(self, process: subprocess.Popen[str], ready: dict[str, Any], log_path: Path) -> None:
        self.process = process
        self.ready = ready
        self._log_path = log_path

    @property
    def address(self) -> Address:
        """Where it listens."""
        return address_of(self.ready["name_server"])

    @property
    def log(self) -> str:
        """What it has logged."""
        return self._log_path.read_text(encoding="utf-8")

    def ended(self) -> int:
        """Wait for its end; return its exit code."""
        return self.process.wait(PATIENCE_S)


def address_of(text: str) -> Address:
    """Return an address from its text."""
    host, _, port = text.rpartition(":")
    return Address(host.strip("[]"), int(port))


@contextmanager
def serving(
    directory: Path, *options: str, listen: str | None = "127.0.0.1:0", **environment: str
) -> Iterator[Serving]:
    """Run ``rmq serve`` with these options, on a free port, until the end of the block."""
    command = [sys.executable, "-m", "rmqclient.workers", "serve", *options]
    if listen is not None:
        command += ["--listen", listen]
    log_path = directory / "serve.log"
    with (
        log_path.open("w") as log,
        subprocess.Popen(command, cwd=TOP, env=os.environ | environment, stdout=-1, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, log_path.read_text(encoding="utf-8")
            yield Serving(process, json.loads(line), log_path)
        finally:
            process.kill()


def refused(*options: str) -> str:
    """Return what ``rmq serve`` prints when it refuses to start with these options."""
    command = [sys.executable, "-m", "rmqclient.workers", "serve", *options]
    ended = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode not in {0, -9}
    assert "Traceback" not in ended.stderr
    return ended.stderr
