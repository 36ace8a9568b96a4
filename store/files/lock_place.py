"""Lock place: whether the lock file that is open is still the one that its path leads to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

from rmqclient.store.errors import StoreReplaced, as_store_error
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class LockPlace:
    """The path of an open lock file, and the device and inode that the file has."""

    def __init__(self, path: Path, identity: tuple[int, int]) -> None:
        self.path = path
        self._name = str(path)  # the check is often, and faster without an object for the path
        self._identity = identity
        self.replaced = ""
        """Why the lock guards nothing any more, once that was found; empty before."""

    def check(self) -> None:
        """Raise StoreReplaced if the lock file is not the one at its path; once it was not, for ever."""
        if self.replaced:
            raise StoreReplaced(self.replaced)
        try:
            found = os.lstat(self._name)
        except (FileNotFoundError, NotADirectoryError):
            self.end(
                f"{self.path.parent} was removed or renamed while process {os.getpid()} had it open: nothing is "
                "written at that path any more. Put it back or make it anew, and start the process again"
            )
        except OSError as error:
            raise as_store_error(error, f"{self.path} cannot be looked at") from error
        else:
            if (found.st_dev, found.st_ino) == self._identity:
                return
            self.end(
                f"{self.path.parent} was replaced by another directory while process {os.getpid()} had it open: "
                "nothing is written to what is there now. Start the process again to use that"
            )

    def end(self, why: str) -> NoReturn:
        """Let the lock guard nothing any more, for ever: raise StoreReplaced."""
        self.replaced = why
        _log.error("%s", why)
        raise StoreReplaced(why)
