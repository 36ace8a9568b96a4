"""Smoke: an installed package sends, handles in worker processes, and outlives a worker that is killed.

``python smoke.py`` runs by itself beside any installation, in an empty directory that it makes. It imports nothing of
the tests. Its last line is ``ok`` with the version of Python.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

SHOP = """
from pathlib import Path
from rmqclient import App, StoreConfig

app = App("./store", config=StoreConfig.small())

@app.handler("orders", group="billing")
def bill(order: dict[str, int]) -> None:
    Path(f"bill-{order['number']}").touch()
"""

LONG_S = 60.0


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "shop.py").write_text(SHOP, encoding="utf-8")
        log = directory / "log"
        with log.open("wb") as opened, subprocess.Popen(
            [RMQ, "run", "shop:app", "--processes", "2"], cwd=directory, stdout=opened, stderr=opened
        ) as supervisor:  # fmt: skip
            try:
                until(lambda: len(ready(log)) == 2, log)
                handled(directory, 1, log)
                os.kill(ready(log)[0], signal.SIGKILL)
                until(lambda: len(ready(log)) == 3, log)
                handled(directory, 2, log)
            finally:
                supervisor.terminate()
        assert supervisor.returncode == 0, log.read_text(encoding="utf-8")
        command(directory, "store", "verify", "./store")
    print(f"ok: Python {sys.version.split()[0]}")


RMQ = str(Path(sysconfig.get_path("scripts")) / "rmq")


def handled(directory: Path, number: int, log: Path) -> None:
    command(directory, "send", "orders", f'{{"number": {number}}}', "--store", "./store")
    until((directory / f"bill-{number}").exists, log)


def command(directory: Path, *arguments: str) -> None:
    subprocess.run([RMQ, *arguments], cwd=directory, check=True, stdout=subprocess.DEVNULL, timeout=LONG_S)


def ready(log: Path) -> list[int]:
    """Return the process ids of all workers that were ready, in this order."""
    text = log.read_text(encoding="utf-8")
    return [int(found) for found in re.findall(r"worker \d+ \(pid (\d+)\): ready", text)]


def until(condition: object, log: Path) -> None:
    assert callable(condition)
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end, log.read_text(encoding="utf-8")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
