"""Addresses: patterns of the addresses of clients, as RocketMQ writes them. [RemoteAddressStrategyFactory]

========================  ==================================================
pattern                   which addresses
========================  ==================================================
(empty)                   none
``*``, ``*.*.*.*``        all
``10.0.0.7``              this one
``10.0.0.7,10.0.0.9``     these
``10.0.0.{7,9}``          these
``10.0.*``, ``10.0.0.*``  those that begin so
``10.0.0.1-20``           those whose part lies in the range, ends included
========================  ==================================================

Addresses of IPv6 are compared in full.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, ip_address
from typing import Final

Matches = Callable[[str], bool]

_LIST: Final = re.compile(r"(.*)\{([^{}]*)\}")
_PART: Final = re.compile(r"\*|[0-9]{1,3}|([0-9]{1,3})-([0-9]{1,3})")


def matching(patterns: Iterable[str]) -> Matches:
    """Return a predicate: does an address match one of the patterns? Raises ValueError for an invalid pattern."""
    found = [match for pattern in patterns for match in _alternatives(pattern)]
    return lambda host: any(match(host) for match in found)


def _alternatives(pattern: str) -> list[Matches]:
    text = pattern.strip()
    if not text:
        return []
    if listed := _LIST.fullmatch(text):
        return [_one(listed[1] + part.strip()) for part in listed[2].split(",")]
    return [_one(part.strip()) for part in text.split(",")]


def _one(text: str) -> Matches:
    if text == "*":
        return lambda _: True
    if ":" in text:
        address = str(ip_address(text))
        return lambda host: host == address
    parts = text.split(".")
    if len(parts) < 4 and parts[-1] == "*":
        parts += ["*"] * (4 - len(parts))
    if len(parts) != 4:
        raise ValueError(f"{text!r} is neither an address nor a pattern such as 10.0.0.* or 10.0.0.1-20")
    ranges = [_range(part, text) for part in parts]
    return lambda host: _is_in(host, ranges)


def _range(part: str, text: str) -> range:
    found = _PART.fullmatch(part)
    if found is None:
        raise ValueError(f"{text!r} is not a pattern of addresses: {part!r} is neither a number, a range nor *")
    if part == "*":
        return range(256)
    lowest, highest = int(found[1] or part), int(found[2] or part)
    if not lowest <= highest <= 255:
        raise ValueError(f"{text!r} is not a pattern of addresses: {part!r} does not lie between 0 and 255")
    return range(lowest, highest + 1)


def _is_in(host: str, ranges: list[range]) -> bool:
    try:
        address = IPv4Address(host)
    except ValueError:
        return False
    return all(number in allowed for number, allowed in zip(address.packed, ranges, strict=True))
