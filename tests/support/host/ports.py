"""A port where nobody listens: it stays taken, so neither another test nor the port of a client may become it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nobody_listens() -> Iterator[socket.socket]:
    """Yield a bound socket; whoever connects is refused until the test listens on it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def address_of(bound: socket.socket) -> str:
    """Return the host and the port of a socket, as addresses are written."""
    return "{}:{}".format(*bound.getsockname())
