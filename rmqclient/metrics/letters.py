"""Letters: how many dead letters of each group wait for somebody."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rmqclient.store.observe.config import settled_letters
from rmqclient.store.observe.observation import Queue
from rmqclient.store.observe.summary import letters_of


class DeadLetterCount:
    """Counts the dead letters that were neither replayed nor purged, in samples of the store in ``root``.

    The journal of what was replayed and purged is read again when it has changed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._journal: tuple[int, int] | None = None
        self._settled: dict[str, set[int]] = {}

    def by_group(self, queues: Iterable[Queue]) -> dict[str, int]:
        """Return those of each group that ever had one. Raises OSError for a journal that cannot be read."""
        journal = _mark_of(self._root / "config" / "deadLetters.jsonl")
        if journal != self._journal:
            self._journal, self._settled = journal, settled_letters(str(self._root))
        return {group: letters.waiting for group, letters in letters_of(queues, self._settled).items()}


def _mark_of(journal: Path) -> tuple[int, int] | None:
    """Return what changes when a line is added; None without a journal."""
    try:
        status = journal.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns
