"""Process: that of a client on this host, if it is sure which one it is.

The id of a client, such as ``10.0.0.7@4711#1``, names a process as the client counts them. In another PID namespace,
such as that of a container beside this one, the number is that of somebody else here, or of nobody. So the process
must have the other end of the client's connection open, and is known again by the time at which it began.
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
    """Ticks of the kernel's clock since it booted, as its text."""

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, also when another one has its number now."""
        return _began(self.pid) != self.began


def process_of(client_id: str, peer: Peer) -> Process | None:
    """Return the process of a client; None when it cannot be told from here which one it is."""
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
    """Yield the sockets that processes of this network namespace have at a port, as links name them."""
    ending = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), Path(f"/proc/self/net/{table}").open(encoding="ascii") as file:
            for line in file:
                words = line.split()
                if words[1].endswith(ending):
                    yield f"socket:[{words[9]}]"
