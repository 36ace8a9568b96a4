"""Random damage that is done to the content of a file: bits, bursts, zeros, other sectors, stale ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

SECTOR = 512


Damage = Callable[[Any], object]
"""Changes the content of a file in place, through something with the items and slices of a bytearray."""


def flip(position: int, bit: int) -> Damage:
    def damage(content: Any) -> None:
        content[position] ^= 1 << bit

    return damage


def random_damage(damage: Callable[[Any, int, random.Random], None], seed: int, size: int) -> Damage:
    return lambda content: damage(content, size, random.Random(seed))


def _some_bits(content: Any, size: int, rng: random.Random) -> None:
    for _ in range(rng.randint(2, 8)):
        content[rng.randrange(size)] ^= 1 << rng.randrange(8)


def _burst(content: Any, size: int, rng: random.Random) -> None:
    start = rng.randrange(size)
    for at in range(start, min(size, start + rng.randint(1, 64))):
        content[at] = rng.randrange(256)


def _zeros(content: Any, size: int, rng: random.Random) -> None:
    start, length = sector_of(size, rng)
    content[start : start + length] = bytes(length)


def _swapped(content: Any, size: int, rng: random.Random) -> None:
    first, length = sector_of(size, rng)
    second, other = sector_of(size, rng)
    length = min(length, other)
    kept = bytes(content[first : first + length])
    content[first : first + length] = content[second : second + length]
    content[second : second + length] = kept


def _stale(content: Any, size: int, rng: random.Random) -> None:
    first, length = sector_of(size, rng)
    second, other = sector_of(size, rng)
    length = min(length, other)
    content[first : first + length] = content[second : second + length]


def sector_of(size: int, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(0, size, SECTOR)
    return start, min(SECTOR, size - start)


DAMAGES: dict[str, Callable[[Any, int, random.Random], None]] = {
    "bits": _some_bits,
    "burst": _burst,
    "zeroed sector": _zeros,
    "swapped sectors": _swapped,
    "stale sector": _stale,
}
