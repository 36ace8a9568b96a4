"""The plan of a run: topics, groups, sizes, and the one body that a message can have. All of it follows from a seed."""

from __future__ import annotations

import enum
import math
import os
import random
import struct
from array import array
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Final

from rmqclient.consumer_config import ConsumerConfig
from rmqclient.failures.retry import RetryPolicy
from rmqclient.store import StoreConfig
from rmqclient.store.config import RetentionConfig

SEQUENCE_BITS: Final = 40
HEADER: Final = struct.Struct("<QIIHH")
"""Message, seed, length of the filler, key, attempt."""

MAX_RETRIES: Final = 2
POISON_IN: Final = 10_000
KEYS: Final = 64

_FILLER_BYTES = 1 << 20
_SIZES = 1 << 16
_COMMON_BYTES = 512
_ONE_LARGE_IN = 4_096


class Mode(enum.Enum):
    """How a topic is consumed."""

    CONCURRENT = "concurrent"
    ORDERED = "ordered"
    KEYED = "keyed"
    """Ordered by sharding key."""
    POISON = "poison"
    """Concurrent, and one message in 10,000 always fails."""

    def why_not(self) -> str:
        """Return why this code base cannot consume so; empty when it can."""
        needed = _NEEDS.get(self)
        return "" if needed is None or find_spec(needed) else f"{self.value}: there is no {needed} yet"

    def options(self) -> dict[str, Any]:
        """Return the options of its handlers."""
        options: dict[Mode, dict[str, Any]] = {
            Mode.CONCURRENT: {},
            Mode.ORDERED: {"order": "queue"},
            Mode.KEYED: {"order": "key"},
            Mode.POISON: {"retry": RetryPolicy(max_retries=MAX_RETRIES, delay_levels=(1,))},
        }
        return options[self]


_NEEDS = {
    Mode.ORDERED: "rmqclient.delivery.modes.orderly",
    Mode.KEYED: "rmqclient.delivery.modes.key_ordered",
    Mode.POISON: "rmqclient.failures.dead_letters",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of a run; its name is its mode's."""

    mode: Mode
    groups: tuple[int, ...]
    """Numbers of the groups that consume it."""

    @property
    def name(self) -> str:
        """Name in the store."""
        return self.mode.value


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is sent and who consumes it."""

    seed: int
    messages: int
    modes: tuple[Mode, ...]
    producers: int = 2
    groups: int = 2
    workers: int = 2
    """Processes of each group."""
    threads: int = 2
    """Of each handler."""
    queues: int = 4
    """Of each topic."""
    largest_batch: int = 64
    lease_ms: int = 20_000
    patience_s: float = 20.0
    """With the lease, how long nothing may move while something is left to do."""

    @cached_property
    def topics(self) -> tuple[Topic, ...]:
        """Every group reads the concurrent topic, the first group all of them."""
        return tuple(Topic(mode, tuple(range(self.groups)) if mode is Mode.CONCURRENT else (0,)) for mode in self.modes)

    @cached_property
    def queue_numbers(self) -> dict[tuple[str, int], int]:
        """Number of each message queue, dead letters and retries of the groups behind those of the topics."""
        names = [topic.name for topic in self.topics]
        names += [f"{prefix}{group_name(group)}" for prefix in ("%RETRY%", "%DLQ%") for group in range(self.groups)]
        return {(name, queue): number * self.queues + queue for number, name in enumerate(names)
                for queue in range(self.queues)}  # fmt: skip

    @cached_property
    def topic_of_queue(self) -> dict[int, Topic]:
        """The topic of each queue number that producers send to."""
        return {self.queue_numbers[topic.name, queue]: topic for topic in self.topics for queue in range(self.queues)}

    @property
    def consumer(self) -> ConsumerConfig:
        """Leases on the time scale of the run."""
        return ConsumerConfig(
            lease_ms=self.lease_ms,
            liveness_interval_ms=max(20, min(250, self.lease_ms // 20)),
            drain_ms=max(250, self.lease_ms // 4),
            rebalance_interval_ms=2_000,
        )

    @property
    def store(self) -> StoreConfig:
        """Nothing is removed, however full the disk is: the final read needs every record."""
        return StoreConfig(
            default_queue_count=self.queues,
            message_index=False,
            offset_persist_interval_ms=500,
            retention=RetentionConfig(
                disk_max_used_percent=100, disk_clean_forcibly_percent=100, disk_full_percent=100
            ),
        )

    @property
    def most_in_flight(self) -> int:
        """Messages of one topic whose handlers run in one process at the same time."""
        return self.threads

    # --- bodies -----------------------------------------------------------------------------------

    @cached_property
    def _filler(self) -> bytes:
        return random.Random(self.seed).randbytes(_FILLER_BYTES)

    @cached_property
    def _sizes(self) -> array[int]:
        """Log-uniform: up to half a KiB, and one in some thousand up to a MiB."""
        chance = random.Random(self.seed + 1)
        sizes = array("I", (_log_uniform(chance, _COMMON_BYTES) for _ in range(_SIZES)))
        for place in range(0, _SIZES, _ONE_LARGE_IN):
            sizes[place] = _log_uniform(chance, _FILLER_BYTES)
        return sizes

    def seed_of(self, message: int) -> int:
        """Return the seed of a message's body, 32 bits."""
        return (message * 0x9E37_79B1 + (message >> 32) * 0x85EB_CA6B + self.seed) & 0xFFFF_FFFF

    def is_poison(self, message: int) -> bool:
        """Tell whether its handler must fail, in a topic that has such."""
        return self.seed_of(message) % POISON_IN == 0

    def body(self, message: int, key: int, attempt: int) -> bytes:
        """Return the only right body of a message."""
        seed = self.seed_of(message)
        size = self._sizes[seed % _SIZES]
        begin = (seed >> 12) % (_FILLER_BYTES - size + 1)
        return HEADER.pack(message, seed, size, key, attempt) + self._filler[begin : begin + size]

    def is_right(self, body: bytes, message: int, seed: int, size: int) -> bool:
        """Tell whether a body, taken apart by ``HEADER``, is the one that was sent."""
        if seed != self.seed_of(message) or size != self._sizes[seed % _SIZES] or len(body) != HEADER.size + size:
            return False
        begin = (seed >> 12) % (_FILLER_BYTES - size + 1)
        return body.endswith(self._filler[begin : begin + size])

    def prepare(self) -> None:
        """Compute what all processes need, before they are forked."""
        assert self._filler
        assert self._sizes


def group_name(group: int) -> str:
    """Return the name of a group in the store."""
    return f"group{group}"


def known_modes() -> tuple[tuple[Mode, ...], list[str]]:
    """Return the modes that this code base has, and for the others why not."""
    return tuple(mode for mode in Mode if not mode.why_not()), [reason for mode in Mode if (reason := mode.why_not())]


def fresh_seed() -> int:
    """Return a seed to print."""
    return int.from_bytes(os.urandom(4), "little")


def _log_uniform(chance: random.Random, most: int) -> int:
    return int(math.exp(chance.uniform(0, math.log(most + 1)))) - 1
