"""The C++ client under Python: the package ``rocketmq``, whose wheel brings the library ``librocketmq``."""

from __future__ import annotations

import importlib
import sys
import time
from itertools import cycle, islice
from pathlib import Path

from benchmarks.child import Begin
from benchmarks.cluster.ours import SENT
from benchmarks.measure import Span
from benchmarks.traffic import KEYS, TAG

PACKAGE = "rocketmq==0.4.4"


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
