"""What a client may leave behind: nothing. Threads and descriptors are counted before and after."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 10.0


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Raise AssertionError when a block leaves a thread of a client, or a socket, behind."""
    gc.collect()
    before = threads() | sockets()  # another test's client may serve its process for good
    yield
    deadline = time.monotonic() + PATIENCE_S
    while (left := sorted((threads() | sockets()) - before)) and time.monotonic() < deadline:
        time.sleep(0.01)  # a peer of the test ends when it sees that the client has hung up
    assert left == []


def threads() -> set[str]:
    """Return the threads that clients have, each by its number and name."""
    return {f"{thread.ident} {thread.name}" for thread in threading.enumerate() if thread.name.startswith("rmq-")}


def sockets() -> set[str]:
    """Return the sockets, polls and bells of this process, by what the kernel calls them."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            name = str(descriptor.readlink())
        except FileNotFoundError:
            continue
        if name.startswith("socket:") or "event" in name:
            found.add(f"{descriptor.name} {name}")
    return found
