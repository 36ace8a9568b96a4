"""Process: the process of a client on this host, if it can be identified.

A client id such as ``10.0.0.7@4711#1`` has the process id in the client's own PID namespace. If that is another one,
such as a container's, the number here names another process or no process. So the process must also have the other end
of the client's connection open, and its start time guards against a reused id.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqclient.broker.request import Peer

_LOOPBACK = frozenset(("127.0.0.1", "::1"))


class Process(NamedTuple):
    """A process of this PID namespace."""

    pid: int
    began: str
    """Start time in clock ticks since boot, as the text in ``/proc``."""

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, even if another process has its id now."""
        return _began(self.pid) != self.began


def process_of(client_id: str, peer: Peer) -> Process | None:
    """Return the process of a client; None if it cannot be identified from here."""
    number = client_id.partition("@")[2].partition("#")[0]
    if peer.remote.host not in _LOOPBACK or not (number.isascii() and number.isdecimal()):
        return None
    pid = int(number)
    began = _began(pid)
    if began is None or not _sockets(pid).intersection(_sockets_of_port(peer.remote.port)):
        return None
    return Process(pid, began)


def _began(pid: int) -> str | None:
    with contextlib.suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return status.rpartition(")")[2].split()[19]
    return None


def _sockets(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(descriptor.readlink()))
    return found


def _sockets_of_port(port: int) -> Iterator[str]:
    """Yield the sockets of this network namespace at a local port, as the links in ``/proc/*/fd`` name them."""
    ending = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), Path(f"/proc/self/net/{table}").open(encoding="ascii") as file:
            for line in file:
                words = line.split()
                if words[1].endswith(ending):
                    yield f"socket:[{words[9]}]"
