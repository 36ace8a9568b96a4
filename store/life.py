"""Life: whether this process may use the store that it has opened, and whether the store takes messages of its own."""

from __future__ import annotations

import os
from pathlib import Path

from rmqclient.store.errors import StoreClosed, StoreReplaced, as_store_error
from rmqclient.store.files.file_lock import LockFile
from rmqclient.store.files.mapped_file import FileIdentity
from rmqclient.store.log import commit_log, consume_queue
from rmqclient.store.runtime import shared_state
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.settings.replica_mark import check_primary

_SHARED_NAMES = (shared_state.FILE_NAME, commit_log.DIRECTORY, consume_queue.DIRECTORY)
"""What processes have mapped, or find each other's files in: all must mean the same by these names."""


class Life:
    """One opening of a store: from :func:`rmqclient.store.open_store` until ``close``, in the process that opened it.

    The parts that must not work after that have it, and ask it. It refers to none of them.
    """

    def __init__(self, root: Path, state: SharedState, lock: LockFile) -> None:
        self._root = root
        self._state = state
        self._place = lock.place
        self._pid = os.getpid()
        self.is_closed = False
        self.is_leaving = False
        """Whether ``close`` is at work; a signal handler may call it again meanwhile."""
        self._shared_paths = [os.path.join(root, name) for name in _SHARED_NAMES]  # noqa: PTH118  looked at often
        self._identities: dict[str, FileIdentity] = {}
        """What the shared paths lead to, from when it was first there."""
        self._check_shared_names()

    def check_usable(self) -> None:
        """Raise StoreClosed after ``close`` and in a forked child, StoreReplaced when that was found."""
        if self._place.replaced:
            raise StoreReplaced(self._place.replaced)
        if self.is_closed:
            raise StoreClosed(f"the store in {self._root} was closed")
        if os.getpid() != self._pid:
            raise StoreClosed(
                f"the store in {self._root} was opened by process {self._pid}: open it again after a fork"
            )

    def check_in_place(self) -> None:
        """Raise StoreReplaced when the directory, or what all processes share in it, was removed, renamed or replaced.

        That ends every use of the store. Every append to what this process has open is refused from then on, and
        threads that wait for messages wake up.
        """
        try:
            self._place.check()
            self._check_shared_names()
        finally:
            if self._place.replaced:
                self._state.end_replaced()

    def _check_shared_names(self) -> None:
        for path in self._shared_paths:
            known = self._identities.get(path)  # before the look: another thread may note what has just been made
            found = _identity(path)
            if known is None:
                if found is not None:
                    self._identities.setdefault(path, found)
            elif found != known:
                how = "removed or renamed" if found is None else "replaced"
                self._place.end(
                    f"{path} was {how} while process {os.getpid()} had the store open: nothing is written "
                    "to the store any more. Stop all its processes, then start them again"
                )

    @property
    def is_replica(self) -> bool:
        """Whether the store takes no messages of its own: it follows another one, or another one replaced it."""
        return bool(self._state.is_replica)

    def check_primary(self) -> None:
        """Raise ReadOnlyReplica when the store takes no messages of its own."""
        check_primary(self._root, is_replica=self.is_replica)


def _identity(path: str) -> FileIdentity | None:
    try:
        status = os.stat(path)  # noqa: PTH116  looked at often
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise as_store_error(error, f"{path} cannot be looked at") from error
    return status.st_dev, status.st_ino
