"""Addresses: ``HOST:PORT`` in a replica's settings, and the address of a primary's broker by RocketMQ's rule."""

from __future__ import annotations


def split(address: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``; an IPv6 host is in brackets. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) <= 65_535:
        raise ValueError(f"{address!r} is not HOST:PORT with a port from 1 to 65535")
    return host.strip("[]"), int(port)


def broker_beside(primary: str) -> str:
    """Return the broker's address of a stock primary, whose HA port is the next one. [BrokerStartup]"""
    host, port = split(primary)
    if port == 1:
        raise ValueError(f"{primary!r}: there is no port before 1: say where its broker is")
    return f"[{host}]:{port - 1}" if ":" in host else f"{host}:{port - 1}"
