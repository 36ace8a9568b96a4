"""Store host: the broker's address in each record, as the reading client knows it.

Clients make an offset message id from this address and the record's log offset, and later query the message there
(MessageDecoder.createMessageId). A record of a local producer has a fixed address, and a broker has many addresses, so
the address to which the client connected is written into the records sent to it.

The address takes 8 bytes with IPv4 and 20 with IPv6; a bit of the system flag tells which
(MessageSysFlag.STOREHOSTADDRESS_V6_FLAG).
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

from rmqclient.broker.address import Address

_SIZE: Final = slice(0, 4)
_LOW_BYTE: Final = 39  # of the system flag
_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20
_STORE_HOST: Final = 64
_SHORT: Final = 8
_LONGER: Final = 12  # bytes of an IPv6 address beyond an IPv4 one


@lru_cache(256)
def host_bytes(address: Address) -> bytes | None:
    """Return an address in the form of records; None for a host name, with which records stay unchanged."""
    try:
        host = ipaddress.ip_address(address.host)
    except ValueError:
        return None
    if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped is not None:
        host = host.ipv4_mapped
    return host.packed + address.port.to_bytes(4, "big")


def with_store_host(record: bytes, address: Address) -> bytes:
    """Return a record with this address. ``__CRC32#`` stays as it was: clients do not check it."""
    host = host_bytes(address)
    if host is None:
        return record
    flag = record[_LOW_BYTE]
    begin = _STORE_HOST + (_LONGER if flag & _BORN_V6 else 0)
    end = begin + _SHORT + (_LONGER if flag & _STORE_V6 else 0)
    changed = bytearray(record[:begin] + host + record[end:])
    changed[_SIZE] = len(changed).to_bytes(4, "big")
    changed[_LOW_BYTE] = flag & ~_STORE_V6 | (_STORE_V6 if len(host) > _SHORT else 0)
    return bytes(changed)
