"""All threads of a server allocate from one heap: what one of them frees serves the others, and its memory stays."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from rmqclient import Producer
from rmqclient.testing import serve

HEAP_BYTES = 64 << 20
"""What glibc reserves for the heap of a thread, at a multiple of its size. [malloc/arena.c: HEAP_MAX_SIZE]"""


def heaps_of_threads(pid: int) -> list[str]:
    """The begins of mappings where glibc has the heap of a thread, before the rest of what it reserves for it."""
    text = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
    pairs = re.findall(
        r"^([0-9a-f]+)-([0-9a-f]+) rw-p 0+ 00:00 0\s*\n\2-([0-9a-f]+) ---p 0+ 00:00 0", text, re.MULTILINE
    )
    return [begin for begin, _, end in pairs if int(begin, 16) % HEAP_BYTES == 0 == int(end, 16) % HEAP_BYTES]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries have no heap for each thread")
def test_the_threads_of_a_server_share_one_heap(tmp_path: Path) -> None:
    with serve(tmp_path / "store") as server, Producer(server.url) as producer:
        producer.send("orders", b"the first message of a topic is stored by a thread of its own")
        assert len(list(Path(f"/proc/{server.pid}/task").iterdir())) > 1
        assert heaps_of_threads(server.pid) == []
