"""History: has what each group does written down. A process that lives for a moment loads nothing of it."""

# ruff: noqa: PLC0415 - the recorder and what it reads by are loaded for the first record

from __future__ import annotations

from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.errors import QueueError
from rmqclient.store.files.file_lock import LockFile
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class History:
    """The history of one open store. See :mod:`rmqclient.store.history`."""

    def __init__(self, root: Path, lock: LockFile) -> None:
        self._root = root
        self._lock = lock

    def record(self) -> None:
        """Write down what was counted since the last record. Raises StoreBusy while another process does, OSError."""
        from rmqclient.store.history.recorder import Recorder

        Recorder(self._root, self._lock).record()

    def finish(self) -> None:
        """Write a last record, if there is a history; for the last process that closes the store."""
        if not (self._root / layout.HISTORY_FILE).exists():
            return
        from rmqclient.store.observe.shared_file import Unreadable

        try:
            self.record()
        except (QueueError, OSError, Unreadable) as error:
            _log.warning("%s: what was counted in the last seconds is not in the history: %s", self._root, error)
