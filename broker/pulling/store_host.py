"""Store host: the address of the broker that each record carries, as the client that reads it knows the broker.

Clients make offset message ids of it and of the record's place in the log, and ask that address for the message again
(MessageDecoder.createMessageId). A record of a local producer has a fixed address. One broker has many addresses, so
the one by which the client came in is written into what goes out to it.

The address takes 8 bytes with IPv4 and 20 with IPv6, and a bit of the system flag says which
(MessageSysFlag.STOREHOSTADDRESS_V6_FLAG).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from rmqclient.broker.settings import Address

_SIZE: Final = slice(0, 4)
_LOW_BYTE: Final = 39  # of the system flag
_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20
_STORE_HOST: Final = 64
_LONGER: Final = 12  # an IPv6 address, compared with an IPv4 one
_SHORT: Final = 8


def with_store_host(records: Iterable[bytes], address: Address) -> bytes:
    """Return records one behind the other, with this address in each; as they are if it is a name of a host."""
    host = _bytes_of(address)
    if len(host) != _SHORT:
        return b"".join([_changed(record, host) for record in records])
    whole = bytearray()
    for record in records:
        if record[_LOW_BYTE] & (_BORN_V6 | _STORE_V6):
            whole += _changed(record, host)
            continue
        at = len(whole) + _STORE_HOST
        whole += record
        whole[at : at + _SHORT] = host
    return bytes(whole)


@lru_cache(256)
def _bytes_of(address: Address) -> bytes:
    """Return an address as records have it; nothing for a name."""
    try:
        host = ipaddress.ip_address(address.host)
    except ValueError:
        return b""
    if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped is not None:
        host = host.ipv4_mapped
    return host.packed + address.port.to_bytes(4, "big")


def _changed(record: bytes, host: bytes) -> bytes:
    """Return a record with another store host, of whatever size."""
    if not host:
        return record
    flag = record[_LOW_BYTE]
    begin = _STORE_HOST + (_LONGER if flag & _BORN_V6 else 0)
    end = begin + _SHORT + (_LONGER if flag & _STORE_V6 else 0)
    changed = bytearray(record[:begin] + host + record[end:])
    changed[_SIZE] = len(changed).to_bytes(4, "big")
    changed[_LOW_BYTE] = flag & ~_STORE_V6 | (_STORE_V6 if len(host) > _SHORT else 0)
    return bytes(changed)
