"""Hosts: addresses in the form of records and offset message ids. [MessageDecoder.createMessageId]"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from time import monotonic
from typing import Final

from rmqclient.broker.address import Address

AGAIN_S: Final = 10.0
"""Seconds until an unknown name is looked up again, for which the caller waits."""

_MOST_KEPT: Final = 1024
_NOBODY: Final = bytes((127, 0, 0, 1))

_unknown: dict[str, float] = {}
"""Negative DNS cache for names of ``--advertise``: name → earliest next lookup."""


class _Packed(dict[Address, bytes]):
    def __missing__(self, address: Address) -> bytes:
        number, port = _number_of(address.host), address.port.to_bytes(4, "big")
        if number is None:
            return _NOBODY + port
        if len(self) >= _MOST_KEPT:
            self.clear()
        self[address] = number + port
        return self[address]


packed: Final[Callable[[Address], bytes]] = _Packed().__getitem__
"""Returns an address as 4 bytes of IPv4 or 16 of IPv6, and the port as 4.

A host name, as ``--advertise`` may give it, is looked up once. An unknown one counts as 127.0.0.1 until it is known.
"""


def _number_of(host: str) -> bytes | None:
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return _looked_up(host)
    mapped = number.ipv4_mapped if isinstance(number, ipaddress.IPv6Address) else None
    return (mapped or number).packed


def _looked_up(host: str) -> bytes | None:
    """Return the packed address of a name; None if it is unknown, or was so a moment ago."""
    if monotonic() < _unknown.get(host, 0.0):
        return None
    try:
        return socket.inet_aton(socket.gethostbyname(host))
    except OSError:
        _unknown[host] = monotonic() + AGAIN_S
        return None


def offset_id(address: Address, commit_log_offset: int) -> str:
    """Return the offset message id of a record: the server's address and the log offset."""
    return (packed(address) + commit_log_offset.to_bytes(8, "big")).hex().upper()
