"""Pair: a target and the work directory that records its messages. Only together do they hold each message once.

The same identity stands in both. In the target it is the name of an empty directory, because some readers take every
file of a directory for data.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from rmqclient.errors import DataLost
from rmqclient.store.files.mapped_file import sync_directory
from rmqclient.store.settings.document import replace_file

_IDENTITY = "_published.json"
_MARK = ".published-"


class Pair:
    """The target and the work directory of one writer."""

    def __init__(self, target: Path, work: Path) -> None:
        self.target = target
        self.work = work
        self.identity = ""
        """The identity of both since :meth:`open`; empty before."""

    def open(self, *, is_new: bool) -> None:
        """Check that the two belong together; mark them if there is nothing in them yet (``is_new``: no batch).

        Raises DataLost if they do not belong together: messages could be lost or doubled.
        """
        here = self.work / _IDENTITY
        if not here.exists():
            if any(self.target.rglob("*.parquet")):
                raise DataLost(
                    f"{self.target} has files, but {self.work}, which records their messages, is gone: bring it back, "
                    "or begin with an empty directory"
                )
            replace_file(here, json.dumps({"id": uuid.uuid4().hex}).encode())
        self.identity = self._identity_of_work() or ""
        found = self._marks()
        if not found and is_new:
            self._mark(self.identity)
            found = [self.identity]
        if found != [self.identity]:
            raise DataLost(
                f"{self.target} is not the directory that {self.work} was made for: bring that directory back, or "
                f"remove {self.work} to begin again in an empty directory"
            )

    def check(self) -> None:
        """Raise DataLost if another directory stands at one of the two paths than when this was opened."""
        work = self._identity_of_work()
        if work != self.identity or self._marks() != [work]:
            raise DataLost(
                f"{self.target} or {self.work} was moved away or replaced while it was written to: bring it back, and "
                "run again"
            )

    def _identity_of_work(self) -> str | None:
        try:
            return str(json.loads((self.work / _IDENTITY).read_bytes())["id"])
        except FileNotFoundError:
            return None

    def _marks(self) -> list[str]:
        """Return the identities in the target: one, or none in a new directory."""
        old = self.target / _IDENTITY  # of older versions
        if old.exists():
            self._mark(json.loads(old.read_bytes())["id"])
            old.unlink()
        return [path.name.removeprefix(_MARK) for path in self.target.glob(f"{_MARK}*")]

    def _mark(self, identity: str) -> None:
        (self.target / f"{_MARK}{identity}").mkdir(exist_ok=True)
        sync_directory(self.target)
