"""The C++ client under Python: the package ``rocketmq``, whose wheel brings the library ``librocketmq``."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from itertools import cycle, islice
from pathlib import Path

from benchmarks.child import Begin
from benchmarks.cluster.ours import SENT
from benchmarks.measure import Span
from benchmarks.traffic import KEYS, TAG

PACKAGE = "rocketmq==0.4.4"
_PIP_S = 300


def installed(directory: Path) -> Path | str:
    """Install the package beside the environment; return where it is, or why it is not there."""
    target = directory / "librocketmq"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*command, "--target", str(target), PACKAGE], capture_output=True, text=True, timeout=_PIP_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"pip did not install {PACKAGE} in {_PIP_S} s"
    if done.returncode:
        return f"pip did not install {PACKAGE}: {done.stderr.strip().splitlines()[-1:]}"
    return target


def send(begin: Begin, target: Path, name_servers: str, messages: int, body_bytes: int) -> Span:
    """Send one by one."""
    sys.path.insert(0, str(target))
    client = importlib.import_module("rocketmq.client")
    producer = client.Producer("librocketmq")
    producer.set_namesrv_addr(name_servers)
    producer.start()

    def send_some(count: int) -> None:
        for key in islice(cycle(KEYS), count):
            message = client.Message(SENT)
            message.set_keys(key)
            message.set_tags(TAG)
            message.set_body(body)
            producer.send_sync(message)

    body = bytes(body_bytes).replace(b"\0", b"x")
    send_some(messages // 5)
    begin()
    begun_ns = time.monotonic_ns()
    send_some(messages)
    ended_ns = time.monotonic_ns()
    producer.shutdown()
    return Span(messages=messages, record_bytes=0, begun_ns=begun_ns, ended_ns=ended_ns)
