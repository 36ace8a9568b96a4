"""Cleanup policy: whether a topic keeps every message, or the latest of each key.

It is settled when a topic is made (:mod:`rmqclient.store.upkeep.compaction`). ``topics.json`` says so in the words of
RocketMQ 5, and so does a directory ``compaction/<topic>``, because a 4.9 broker that rewrites the file leaves these
words out.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import ConfigMismatch, store_errors
from rmqclient.store.files.compacted_file import DIRECTORY, directory_of, make_durable_directory
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.settings import config_file
from rmqclient.store.settings.config_file import TopicConfig

_MEMBERSHIP_WORD = layout.RUNTIME_HEADER.at["membership_word"]


class CleanupPolicies:
    """The policies of a store's topics, as one process knows them."""

    def __init__(self, root: Path, state: SharedState) -> None:
        self._root = root
        self._state = state
        self._compact: dict[str, bool] = {}
        self._read_at: int | None = None

    def is_compact(self, topic: str) -> bool:
        """Tell whether a topic keeps the latest message of each key.

        It does for good. One that does not can be removed, and be made again by any process as one that does.
        """
        if not self._compact.get(topic):
            word = self._state.words.load32(_MEMBERSHIP_WORD)  # before the files: their writers signal afterwards
            if topic not in self._compact or self._read_at != word:
                self._read()
                self._read_at = word
        return self._compact.setdefault(topic, False)

    def settle(self, topic: str, config: TopicConfig, asked: str | None = None) -> None:
        """Settle the policy of a topic for good. Raises ConfigMismatch if it has another one than ``asked``."""
        directory = directory_of(self._root, topic)
        with store_errors(f"{directory} cannot be looked at"):
            is_there = directory.is_dir()
        policy = "compact" if is_there else config.cleanup_policy
        if asked not in (None, policy):
            raise ConfigMismatch(
                f"topic {topic!r} was made with cleanup_policy={policy!r}, asked for {asked!r}: make another topic and "
                "send its messages there"
            )
        if policy == "compact" and not is_there:
            reach(CrashPoint.COMPACT_TOPIC_NAMED)
            make_durable_directory(directory, self._root)
        self._compact[topic] = policy == "compact"

    def _read(self) -> None:
        for name, config in config_file.read_topics(self._root).items():
            self._compact[name] = config.cleanup_policy == "compact"
        directory = self._root / DIRECTORY
        with store_errors(f"{directory} cannot be looked at"), contextlib.suppress(FileNotFoundError):
            self._compact |= {path.name: True for path in directory.iterdir()}
