"""The example of a price service: a worker that answers, and somebody who asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]


def test_who_asks_the_worker_gets_the_price(tmp_path: Path) -> None:
    environment = os.environ | {"RMQ_STORE": str(tmp_path / "store"), "PYTHONPATH": str(TOP)}
    worker = [sys.executable, "-m", "rmqclient.workers", "run", "examples.quotes:app"]
    with subprocess.Popen(worker, cwd=TOP, env=environment, stderr=subprocess.DEVNULL) as running:
        try:
            asked = [sys.executable, "-m", "examples.quotes", "apples", "3"]
            done = subprocess.run(asked, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
        finally:
            running.terminate()
    assert done.stdout == "{'item': 'apples', 'total': 1.5}\n", done.stderr
    assert running.returncode == 0
