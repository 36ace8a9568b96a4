"""Hosts: addresses as records and offset message ids have them. [MessageDecoder.createMessageId]"""

from __future__ import annotations

import functools
import ipaddress
import socket

from rmqclient.broker.settings import Address

BORN_HOST_IS_IPV6 = 0x10
STORE_HOST_IS_IPV6 = 0x20
"""Bits of a message's system flag. [MessageSysFlag.BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG]"""


@functools.lru_cache(1024)
def packed(address: Address) -> bytes:
    """Return 4 bytes of an IPv4 address, or 16 of another one, and the port in 4.

    A name that is not a number, as ``--advertise`` may give it, is looked up once; one that nobody knows counts as
    127.0.0.1.
    """
    return _number_of(address.host) + address.port.to_bytes(4, "big")


def _number_of(host: str) -> bytes:
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        try:
            return socket.inet_aton(socket.gethostbyname(host))
        except OSError:
            return bytes((127, 0, 0, 1))
    mapped = number.ipv4_mapped if isinstance(number, ipaddress.IPv6Address) else None
    return (mapped or number).packed


def offset_id(address: Address, commit_log_offset: int) -> str:
    """Return the id by which clients ask this server for a record: its address, and the place in its log."""
    return (packed(address) + commit_log_offset.to_bytes(8, "big")).hex().upper()
