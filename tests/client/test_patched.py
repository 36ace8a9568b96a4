"""A process whose threads gevent has replaced is told so, and keeps no other one waiting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient import Message, Producer

pytest.importorskip("gevent", reason="no gevent: make install-all brings it")

OPENS = """
import sys
from gevent import monkey
monkey.patch_all()
from rmqclient import Producer
from rmqclient.errors import StoreUnusable
try:
    Producer(sys.argv[1])
except StoreUnusable as error:
    print(error)
"""


def test_a_patched_process_is_refused_before_it_holds_anything(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPENS, str(tmp_path / "store")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "gevent" in told
    assert not (tmp_path / "store").exists()
    with Producer(tmp_path / "store") as producer:
        producer.send(Message("orders", b"1"))
