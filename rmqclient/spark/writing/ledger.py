"""Ledger: records which batches of one application for one topic are in the log, and which is being appended.

``<store>/spark/<application>/topics/<topic>/ledger.json``, and ``<store>/spark/<application>/ledger.json`` for batches
whose rows name their topics::

    {"format": 2,
     "store": "0f6c...",                                              the identity of the store; null if it has none
     "floor": 41,                                                     batches up to this one are forgotten
     "done": {"42": {"rows": 10000, "content": 1234567,               the last hundred batches
                     "checkpoint": "/checkpoint"}},                   null if it is not known
     "intent": {"batch": 43, "begin": 1048576, "parts": [...],        or null
                "keys": "report/orders",                              what the unique keys of its rows are made of
                "checkpoint": "/checkpoint"}}

Format 1, of older versions, knew no topics and no store: its page is the first page of each topic of the application.

Each change replaces the whole file durably: a kill leaves the old file or the new one. In the same directory, ``lock``
lets one driver at a time commit, and ``batch-43/`` holds the staged parts of the intent, so that the next driver can
complete it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from rmqclient.errors import BatchConflict
from rmqclient.spark.writing.staging import StagedPart
from rmqclient.store.errors import StoreCorrupt, store_errors
from rmqclient.store.files.directory_lock import directory_held
from rmqclient.store.files.mapped_file import make_directory, sync_directory
from rmqclient.store.settings.document import replace_file
from rmqclient.store.settings.identity import store_identity
from rmqclient.store.threads.locks import scope

_FORMAT = 2
_OLDER_FORMAT = 1
_KEPT = 100
_FILE = "ledger.json"
_TOPICS = "topics"


@dataclass(frozen=True)
class Done:
    """A batch that is in the log."""

    rows: int
    content: int
    """64-bit digest of its rows, in any order."""
    checkpoint: str | None = None
    """Where the query that wrote it notes its batches; None if that is not known."""


@dataclass(frozen=True)
class Intent:
    """A batch that is being appended: any of its rows may be in the log, at or above ``begin``, and all will be."""

    batch: int
    begin: int
    parts: tuple[StagedPart, ...]
    keys: str
    """What the unique keys of its rows are made of, besides batch, part and row."""
    checkpoint: str | None = None
    """As of :class:`Done`."""

    @property
    def rows(self) -> int:
        """Number of rows of the whole batch."""
        return sum(part.rows for part in self.parts)

    @property
    def content(self) -> int:
        """64-bit digest of its rows."""
        return content_of(self.parts)


@dataclass(frozen=True)
class Page:
    """The content of the ledger."""

    floor: int = -1
    done: dict[int, Done] = field(default_factory=dict)
    intent: Intent | None = None

    def is_done(self, batch: int) -> bool:
        """Return whether a batch is in the log, or may be: the page does not list the oldest ones any more."""
        return batch <= self.floor or batch in self.done

    def with_done(self, intent: Intent) -> Page:
        """Return the page with the intent done. The oldest batches are forgotten."""
        done = {**self.done, intent.batch: Done(intent.rows, intent.content, intent.checkpoint)}
        forgotten = sorted(done)[:-_KEPT]
        kept = {batch: entry for batch, entry in done.items() if batch not in forgotten}
        return Page(max([self.floor, *forgotten]), kept, None)


def content_of(parts: tuple[StagedPart, ...]) -> int:
    """Return a 64-bit digest of the rows of some parts. It does not depend on how the rows are divided into parts."""
    return sum(part.content for part in parts) & (1 << 64) - 1


class Ledger:
    """The ledger of an application for a topic; without a topic, for batches whose rows name their topics.

    Only the driver inside :meth:`held` changes it.
    """

    def __init__(self, root: Path, application: str, topic: str | None) -> None:
        self._root = root
        self._application = application
        above = root / "spark" / application
        self.directory = above if topic is None else above / _TOPICS / topic
        self._path = self.directory / _FILE
        self._older = above / _FILE

    @scope
    def held(self, timeout_s: float) -> Iterator[None]:
        """Keep other drivers of the application out. Raises StoreBusy if another driver stays in for too long."""
        if not self.directory.is_dir():
            with store_errors(f"{self.directory} cannot be made"):
                make_directory(self.directory)
                for above in self.directory.relative_to(self._root).parents:
                    sync_directory(self._root / above)
        busy = (
            f"another driver has been committing a batch of application {self._application!r} for {timeout_s:g} s: "
            "give each query or job a txnAppId of its own, or stop one of them"
        )
        with directory_held(self.directory, timeout_s, busy):
            yield

    def read(self) -> Page:
        """Return the content of the ledger. Raises StoreCorrupt, and BatchConflict if it is of another store."""
        for path in (self._path, self._older):
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                continue
            try:
                document = orjson.loads(text)
                if path == self._path or document["format"] == _OLDER_FORMAT:
                    self._check_store(document.get("store"))
                    return _page(document, self._application)
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
                raise StoreCorrupt(
                    path, 0, f"not a ledger of batches ({error!r}): restore it, or give the query another txnAppId"
                ) from None
        return Page()

    def _check_store(self, kept: str | None) -> None:
        found = store_identity(self._root)
        if kept is not None and found is not None and kept != found:
            raise BatchConflict(
                f"{self._path} is the ledger of another store, with the identity {kept}; {self._root} has {found}. Its "
                f"batches are not in this log: remove {self.directory} to write them, or bring the other store back"
            )

    def announce(self, page: Page, intent: Intent) -> Page:
        """Record durably that the batch is being appended: from here on it consists of the parts of the intent."""
        return self._write(replace(page, intent=intent))

    def conclude(self, page: Page, intent: Intent) -> Page:
        """Record durably that the batch is in the log."""
        return self._write(page.with_done(intent))

    def withdraw(self, page: Page) -> Page:
        """Forget durably the intent of a batch without a row in the log."""
        return self._write(replace(page, intent=None))

    def take_over(self, root: Path, batch: int, parts: tuple[StagedPart, ...]) -> tuple[StagedPart, ...]:
        """Move the staged files of a batch out of their run; return the parts with their new paths."""
        directory = self.directory / f"batch-{batch}"
        taken = []
        with store_errors(f"{directory} cannot take the staged parts"):
            self.clear()
            make_directory(directory)
            for part in parts:
                path = directory / f"{part.part:05}"
                if part.file:
                    (root / part.file).rename(path)
                    part = replace(part, file=str(path.relative_to(root)))  # noqa: PLW2901 - same part, new path
                taken.append(part)
        return tuple(taken)

    def clear(self) -> None:
        """Remove staged parts, and the files that a killed driver left beside the ledger. No intent may be open."""
        for path in self.directory.iterdir():
            if path.name.startswith("batch-"):
                shutil.rmtree(path, ignore_errors=True)
            elif path.name not in {"lock", _FILE, _TOPICS}:
                path.unlink(missing_ok=True)

    def _write(self, page: Page) -> Page:
        intent = page.intent and {
            "batch": page.intent.batch,
            "begin": page.intent.begin,
            "parts": [part.as_json() for part in page.intent.parts],
            "keys": page.intent.keys,
            "checkpoint": page.intent.checkpoint,
        }
        done = {str(batch): asdict(entry) for batch, entry in sorted(page.done.items())}
        store = store_identity(self._root)
        document = {"format": _FORMAT, "store": store, "floor": page.floor, "done": done, "intent": intent}
        replace_file(self._path, orjson.dumps(document, option=orjson.OPT_INDENT_2))
        return page


def _page(document: dict[str, Any], application: str) -> Page:
    if document["format"] not in (_OLDER_FORMAT, _FORMAT):
        raise ValueError(f"its format is {document['format']}, not {_FORMAT}")
    done = {
        int(batch): Done(entry["rows"], entry["content"], entry.get("checkpoint"))
        for batch, entry in document["done"].items()
    }
    found = document["intent"]
    if not found:
        return Page(document["floor"], done)
    parts = tuple(StagedPart.from_json(part) for part in found["parts"])
    keys, checkpoint = found.get("keys", application), found.get("checkpoint")
    intent = Intent(found["batch"], found["begin"], parts, keys, checkpoint)
    return Page(document["floor"], done, intent)
