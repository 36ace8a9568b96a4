"""Store host: the address of the broker that each record carries, as the client that reads it knows the broker.

Clients make offset message ids of it and of the record's place in the log, and ask that address for the message again
(MessageDecoder.createMessageId). A record of a local producer has a fixed address. One broker has many addresses, so
the one by which the client came in is written into what goes out to it.

The address takes 8 bytes with IPv4 and 20 with IPv6, and a bit of the system flag says which
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
_LONGER: Final = 12  # an IPv6 address, compared with an IPv4 one


@lru_cache(256)
def host_bytes(address: Address) -> bytes | None:
    """Return an address as records have it; None for the name of a host, and records keep what they have."""
    try:
        host = ipaddress.ip_address(address.host)
    except ValueError:
        return None
    if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped is not None:
        host = host.ipv4_mapped
    return host.packed + address.port.to_bytes(4, "big")


def with_store_host(record: bytes, address: Address) -> bytes:
    """Return a record with this address in it. Nobody checks ``__CRC32#`` behind the log, so it stays as it was."""
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
