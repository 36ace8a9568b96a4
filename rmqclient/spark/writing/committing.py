"""Committing: appends the staged parts of a batch to the log, each row once, while other producers append.

The log belongs to many writers, so a batch cannot be cut off again. A batch that was begun is completed:

======  ==============  ==========================================================================================
step    name            after a kill in this step
======  ==============  ==========================================================================================
1       lock, look      nothing has happened: Spark stages the parts again and commits the batch again
2       take over       the same. The parts are in the application's directory; its next commit removes them
3       intent          from here on the batch consists of these parts. The next commit of the application, of this
                        batch or another one, finds in the log which rows landed, and appends the rest
4       append          the same
5       flush           the same: all rows have landed
6       done            the batch is in the log; if it comes again, nothing is appended
7       clear           the next commit removes the staged parts
======  ==============  ==========================================================================================

Invariants:

1. Before the intent, no row of the batch is in the log. The log is durable up to ``begin`` before the intent is.
2. Each row of the batch in the log is at or above ``begin`` and has its unique key: batch, part and row. The rows that
   landed are found by walking from ``begin``, after an append left half done by a dead process is settled.
3. The parts of the intent do not change. A process that completes the intent appends only rows of these parts, each
   row that has not landed, once.
4. Done is written when every row has landed and, with ``flush=commit``, is durable.

Staged parts survive any kill. A power cut can tear them, and may leave a part of the batch in the log: then the same
batch must come again with the same rows in the same order, or :class:`rmqclient.errors.BatchConflict` is raised.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from rmqclient.codecs import encode_body
from rmqclient.errors import BatchConflict
from rmqclient.names import check_topic
from rmqclient.spark.writing.ledger import Done, Intent, Ledger, Page, content_of
from rmqclient.spark.writing.staging import StagedPart
from rmqclient.spark.writing.write_options import keys_of
from rmqclient.store import Appender, MessageQueue, MessageStore, open_store
from rmqclient.store.append import staged
from rmqclient.store.errors import MessageRejected, NotFlushed
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_LOCK_TIMEOUT_S = 60.0
_FLUSH_TIMEOUT_S = 120.0
_LARGE_BYTES = 32 << 20

Contents: TypeAlias = dict[int, staged.Mapping]
"""Staged records, by part number."""


@dataclass(frozen=True)
class Batch:
    """A batch to commit."""

    application: str
    number: int
    parts: tuple[StagedPart, ...]
    topic: str | None = None
    """The topic of every row; None if rows name their topics."""
    is_named: bool = True
    """Whether an option names the application, so that it may commit batches again after its checkpoint was lost."""
    checkpoint: str | None = None
    """Where its query notes its batches; None if that is not known."""

    @property
    def keys(self) -> str:
        """What the unique keys of the rows are made of, besides batch, part and row."""
        return keys_of(self.application, self.topic)

    @property
    def name(self) -> str:
        """The batch in words."""
        return f"batch {self.number} of application {self.application!r}{_for(self.topic)}"

    @property
    def rows(self) -> int:
        """Number of rows of all parts."""
        return sum(part.rows for part in self.parts)


def commit_once(root: Path, batch: Batch, *, flush: bool) -> None:
    """Append a batch to the log unless it is there already.

    Raises BatchConflict if the batch is there with other rows, StoreBusy while another driver of the application
    commits, and MessageRejected if a topic has fewer queues than the batch was staged for. Also raises as a send does:
    then the next commit of the application completes the batch.
    """
    ledger = Ledger(root, batch.application, batch.topic)
    with ledger.held(_LOCK_TIMEOUT_S), _opened(root, batch) as store:
        commit = _Commit(store, ledger, batch, flush=flush)
        page = commit.settle(ledger.read())
        if page.is_done(batch.number):
            _check_same(batch, page)
        elif batch.rows:
            _make_topics(store, batch.parts)
            contents = _mapped(root, batch.parts)
            store.disk.check_room()
            parts = ledger.take_over(root, batch.number, batch.parts)
            intent = Intent(batch.number, commit.durable_end(), parts, batch.keys, batch.checkpoint)
            page = ledger.announce(page, intent)
            page = commit.fulfil(page, intent, contents)
        ledger.clear()


def commit_unnamed(root: Path, batch: Batch, *, flush: bool) -> None:
    """Append a batch that will not come again: a batch write without ``txnAppId``.

    Raises as :func:`commit_once`. If the commit fails halfway, or is killed, the rows that landed stay.
    """
    if batch.rows:
        with _opened(root, batch) as store:
            _make_topics(store, batch.parts)
            contents = _mapped(root, batch.parts)
            store.disk.check_room()
            append_parts(store, batch.keys, batch.number, contents)
            if flush:
                _wait_until_flushed(store, store.state.published_to)


class _Commit:
    """The steps of one commit. The caller holds the application's lock."""

    def __init__(self, store: MessageStore, ledger: Ledger, batch: Batch, *, flush: bool) -> None:
        self._store = store
        self._ledger = ledger
        self._batch = batch
        self._flush = flush

    def durable_end(self) -> int:
        """Make the log durable and return its end."""
        end = self._store.appenders.settle()
        _wait_until_flushed(self._store, end)
        return end

    def settle(self, page: Page) -> Page:
        """Complete the intent of a driver that was killed."""
        intent = page.intent
        if intent is None:
            return page
        end = self.durable_end()
        if end < intent.begin:  # the disk lost bytes that it had reported durable; new records go below ``begin``
            intent = replace(intent, begin=end)
            page = self._ledger.announce(page, intent)
        landed = self._landed(intent, end)
        _log.warning(
            "%s was cut short with %d of %d rows in the log: completing it",
            self._name(intent),
            len(landed),
            intent.rows,
        )
        contents = self._missing(intent, landed)
        if contents is None:
            return self._ledger.withdraw(page)
        return self.fulfil(page, intent, contents, landed)

    def fulfil(self, page: Page, intent: Intent, contents: Contents, landed: staged.Landed | None = None) -> Page:
        """Append the rows that have not landed, flush, and mark the batch as done."""
        append_parts(self._store, intent.keys, intent.batch, contents, landed)
        if self._flush:
            _wait_until_flushed(self._store, self._store.state.published_to)
        return self._ledger.conclude(page, intent)

    def _landed(self, intent: Intent, end: int) -> staged.Landed:
        parts = [(self._prefix(intent, part), part.rows) for part in intent.parts]
        landed = staged.find_landed(self._store.log_files, intent.begin, end, parts)
        begin = self._store.state.min_offset
        if begin > intent.begin and len(landed) < intent.rows:
            raise BatchConflict(
                f"{self._name(intent)} was cut short, and it is unknown which of its rows landed: the log began at or "
                f"below {intent.begin} then, and begins at {begin} now. To write all {intent.rows:,} rows again, "
                f"remove {self._ledger.directory}; to leave out the missing rows, go on with the next batch under "
                "another txnAppId"
            )
        return landed

    def _name(self, intent: Intent) -> str:
        return replace(self._batch, number=intent.batch).name

    def _prefix(self, intent: Intent, part: StagedPart) -> int:
        return staged.unique_prefix(intent.keys, intent.batch, part.part)

    def _missing(self, intent: Intent, landed: staged.Landed) -> Contents | None:
        """Return the parts with missing rows; None if a part is lost and no row of the batch has landed."""
        again = self._batch.parts if self._batch.number == intent.batch else ()
        contents: Contents = {}
        for part in intent.parts:
            if landed.rows_of(self._prefix(intent, part)) < part.rows:
                content = _first_whole(self._store.root, [part, *(other for other in again if other.is_same(part))])
                if content is not None:
                    contents[part.part] = content
                elif len(landed) == 0:
                    return None
                else:
                    came = "other rows or another order" if again else f"batch {self._batch.number}"
                    raise BatchConflict(
                        f"{self._name(intent)} was cut short by a power cut, with {len(landed):,} of {intent.rows:,} "
                        f"rows in the log: its staged rows are lost, and this commit has {came}. Write that batch "
                        "again with the same rows in the same order, or go on under another txnAppId"
                    )
        return contents


def append_parts(
    store: MessageStore, keys: str, batch: int, contents: Contents, landed: staged.Landed | None = None
) -> None:
    """Append the staged parts of a batch in order, except for the rows that have landed.

    Raises as ``Appender.append``. The rows before the failure then stay in the log.
    """
    appender = _appender(store)
    for part in sorted(contents):
        staged.append(appender, contents[part], staged.unique_prefix(keys, batch, part), landed)


def _opened(root: Path, batch: Batch) -> MessageStore:
    """Open the store. A large batch gets a housekeeper, which flushes and indexes during the append."""
    return open_store(root, housekeeping=sum(part.size for part in batch.parts) >= _LARGE_BYTES)


def _wait_until_flushed(store: MessageStore, end: int) -> None:
    """Wait until the log is durable, longer than a send waits: the running flush may be of a batch as large as this."""
    deadline = time.monotonic() + _FLUSH_TIMEOUT_S
    while True:
        try:
            return store.flusher.wait_until_flushed(end)
        except NotFlushed as error:
            if error.__cause__ is not None or time.monotonic() > deadline:
                raise


def _appender(store: MessageStore) -> Appender:
    def make_topic(topic: str) -> list[MessageQueue]:
        return store.topics.create(check_topic(topic), store.config.default_queue_count)

    return store.appenders.make(make_topic, encode_body, prepare=store.housekeeper is not None)


def _make_topics(store: MessageStore, parts: tuple[StagedPart, ...]) -> None:
    for topic in sorted({topic for part in parts for topic in part.queue_counts}):
        needed = max(part.queue_counts.get(topic, 0) for part in parts)
        store.topics.create(topic, store.config.default_queue_count)
        queues = store.topics.write_queues(topic)
        if store.topics.is_compact(topic):
            raise MessageRejected(
                f"topic {topic!r} is compact: each of its messages needs a key, and belongs to the queue of that key, "
                "which Spark cannot guarantee. Nothing was written; send the messages with a producer"
            )
        if len(queues) < needed:
            raise MessageRejected(
                f"topic {topic!r} was made with {len(queues)} queues while rows for {needed} queues were staged: "
                "nothing was written; run the batch again"
            )


def _mapped(root: Path, parts: tuple[StagedPart, ...]) -> Contents:
    """Map the files that the tasks have staged. Raises BatchConflict if a file differs from what its task wrote."""
    contents = {}
    for part in parts:
        if part.rows:
            content = _first_whole(root, [part])
            if content is None:
                raise BatchConflict(
                    f"{root / part.file} differs from what its task staged: nothing was written; run the batch again"
                )
            contents[part.part] = content
    return contents


def _first_whole(root: Path, parts: list[StagedPart]) -> staged.Mapping | None:
    contents = (staged.map_whole(root / part.file, part.size, part.digest) for part in parts)
    return next((content for content in contents if content is not None), None)


def _check_same(batch: Batch, page: Page) -> None:
    """Raise BatchConflict if a batch that is done comes again with other rows, or if that cannot be told any more.

    Spark runs only the newest batch of a query again. A query without a name may compute its rows anew then; one at
    another checkpoint is another query, although a copied checkpoint gives it the same id.
    """
    if not batch.rows and batch.number not in page.done:
        return
    done = page.done.get(batch.number)
    if done is not None and done.rows == batch.rows and done.content == content_of(batch.parts):
        _log.info("%s is in the log already: its %d rows are not appended again", batch.name, batch.rows)
        return
    is_newest = not batch.is_named and batch.number == max(page.done, default=-1)
    if done is not None and done.rows == batch.rows and is_newest and not _is_copied(done, batch):
        _log.warning("%s comes again with other rows: the first rows stay, the new rows are not appended", batch.name)
        return
    if done is None:
        known = f"is older than those whose rows are remembered, {min(page.done)} to {max(page.done)}, and comes"
    else:
        known = (
            f"was written with {f'{done.rows:,} rows' if done.rows != batch.rows else 'other rows'}, and comes again"
        )
    raise BatchConflict(
        f"{batch.name} {known} with {batch.rows:,}: nothing was written. If the "
        "checkpoint was lost or copied, so that batches begin elsewhere, go on under another txnAppId; if each run "
        "computes other rows (random numbers, the present time), make every run compute the same rows"
    )


def _is_copied(done: Done, batch: Batch) -> bool:
    """Return whether a batch is known to come from another checkpoint than the one that is done."""
    places = {done.checkpoint, batch.checkpoint}
    return None not in places and len(places) > 1


def _for(topic: str | None) -> str:
    return "" if topic is None else f" for topic {topic!r}"
