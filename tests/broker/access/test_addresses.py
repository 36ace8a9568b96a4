"""Patterns of addresses, as RocketMQ writes them."""

from __future__ import annotations

import pytest

from rmqclient.broker.access.addresses import matching


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("", "", "10.0.0.1"),
        ("*", "10.0.0.1 ::1", ""),
        ("*.*.*.*", "10.0.0.1", "::1"),
        ("10.0.0.7", "10.0.0.7", "10.0.0.8 10.0.0.70"),
        ("10.0.0.7,10.0.0.9", "10.0.0.7 10.0.0.9", "10.0.0.8"),
        ("10.0.0.{7, 9}", "10.0.0.7 10.0.0.9", "10.0.0.8"),
        ("10.0.*", "10.0.0.1 10.0.255.255", "10.1.0.1"),
        ("10.0.0.1-20", "10.0.0.1 10.0.0.20", "10.0.0.0 10.0.0.21"),
        ("10.0.1-2.*", "10.0.1.9 10.0.2.0", "10.0.3.1"),
        ("::1", "::1", "::2 127.0.0.1"),
    ],
)
def test_a_pattern_matches_what_it_says(pattern: str, inside: str, outside: str) -> None:
    matches = matching([pattern])
    assert all(matches(host) for host in inside.split())
    assert not any(matches(host) for host in outside.split())


@pytest.mark.parametrize(
    "pattern", ["10.0.0", "10.0.0.0.1", "a.b.c.d", "10.0.0.9-7", "10.0.0.256", "localhost", "1:2:x"]
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError):
        matching([pattern])
