"""Reading: a store as it stands, without locks and without changing a byte.

It may be closed, open in other processes, or one that a RocketMQ broker wrote. Files are opened read-only, and nothing
is made: no lock file, no missing directory. File sizes come from ``store.json``, or off the files when a broker made them.

How far the log goes:

- To ``published_to``, when the runtime file is this boot's and nobody but this library wrote to the store since. What
  other processes append meanwhile is not looked at.
- Otherwise to the first zeros above the durable mark of the checkpoint. Zeros that are followed by a file which begins
  with a record are no end: a blank record is missing there.

What is no record is stepped over, by looking for the next one. What is no record and has none behind it is the tail.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from store import checkpoint, commit_log, config_file, consume_queue, layout, shared_state
from store.commit_log import describe
from store.config import StoreConfig
from store.config_file import StoreSettings
from store.consume_queue import ConsumeQueues
from store.errors import StoreCorrupt, StoreUnusable
from store.file_queue import FileQueue, MappingCache
from store.message_queue import MessageQueue
from store.record import Blank, Corrupt, End, Outcome, Record, decode
from store.recovery import Quarantined, believable
from store.shared_state import SharedState, queue_slot_at

_MAPPINGS = 64
_FILES = "[0-9]" * layout.FILE_NAME_DIGITS
_QUEUE = layout.QUEUE_SLOT.at


@dataclass(frozen=True, slots=True)
class Tail:
    """Bytes behind the last record that are neither records nor zeros: the next opening cuts them off."""

    start: int
    end: int
    reason: str


Step = tuple[int, Record | Blank | Quarantined | Tail]


class StoreReader:
    """The files of one store, and how far they were filled when it was made. Use :func:`open_reader`.

    ``state`` is None when the runtime file is not to be believed. ``queues`` holds (min, max) offset of each message
    queue as the runtime file had them, after ``published_to`` was read; it is empty without one.
    """

    def __init__(self, root: Path, settings: StoreSettings, state: SharedState | None) -> None:
        mappings = MappingCache(_MAPPINGS, writable=False)
        queue_bytes = settings.consume_queue_file_entries * layout.CONSUME_QUEUE_ENTRY.size
        self.root = root
        self.state = state
        self.log_files = FileQueue(
            root / commit_log.DIRECTORY, settings.commit_log_file_bytes, scratch=root, mappings=mappings
        )
        self.consume_queues = ConsumeQueues(root, queue_bytes, mappings)
        self._bases = self.log_files.bases()
        if state is not None:
            self.begin = state.min_offset
            self.trusted_to = self.limit = state.published_to
            self.queues = dict(_queues(state))
        else:
            self.begin = self._bases[0] if self._bases else 0
            self.trusted_to = _durable_mark(root, self.begin)
            self.limit = max(self.trusted_to, self._bases[-1] + self.log_files.file_bytes if self._bases else 0)
            self.queues = {}

    def steps(self) -> Iterator[Step]:
        """Yield what stands in the log from its begin to its end, each with its commit log offset."""
        offset = self.begin
        while offset < self.limit:
            outcome = self.outcome(offset)
            if isinstance(outcome, Record):
                yield offset, outcome
                offset += outcome.size
            elif isinstance(outcome, Blank):
                yield offset, outcome
                offset = self.log_files.base_of(offset) + self.log_files.file_bytes
            else:
                found = self._no_record(offset, outcome)
                if found is not None:
                    yield offset, found
                if not isinstance(found, Quarantined):
                    return
                offset = found.end

    def outcome(self, offset: int) -> Outcome:
        """Return what stands at an offset of the log, which may be any number."""
        base = self.log_files.base_of(offset)
        try:
            outcome = decode(self.log_files.mapping(base), offset - base, offset)
        except FileNotFoundError:
            return Corrupt("the file is missing")
        except StoreCorrupt as error:
            return Corrupt(error.reason)
        if isinstance(outcome, Record) and not _has_topic(outcome):
            return Corrupt("the topic is no name")
        return outcome

    def place(self, offset: int) -> tuple[Path, int]:
        """Return the file that holds an offset of the log, and the position in it."""
        base = self.log_files.base_of(offset)
        return self.log_files.path(base), offset - base

    def _no_record(self, offset: int, outcome: Outcome) -> Quarantined | Tail | None:
        """Say what that is at ``offset`` which is neither a record nor a blank record; None for the end of the log."""
        resumed = self._next_record(offset, outcome)
        if resumed is not None:
            return Quarantined(offset, resumed, describe(outcome))
        if offset < self.trusted_to:
            return Quarantined(offset, self.trusted_to, describe(outcome))
        return None if isinstance(outcome, End) else Tail(offset, self.limit, describe(outcome))

    def _next_record(self, offset: int, outcome: Outcome) -> int | None:
        if isinstance(outcome, End) and offset >= self.trusted_to:
            later = (base for base in self._bases if base > offset)
            return next((base for base in later if isinstance(self.outcome(base), Record)), None)
        return commit_log.next_record(self.log_files, offset + 1, self.limit)


def open_reader(root: Path) -> StoreReader:
    """Look at the store in ``root`` as it stands now.

    Raises StoreUnusable when there is none, ConfigMismatch for one of another version, OSError when it is not readable.
    """
    if not root.is_dir():
        raise StoreUnusable(f"{root} is not a directory: give the directory of a store")
    recorded = config_file.read_store_settings(root)
    if recorded is None and not (root / commit_log.DIRECTORY).is_dir():
        raise StoreUnusable(f"{root} holds no store: neither {config_file.STORE_SETTINGS_FILE} nor a commit log")
    return StoreReader(root, recorded or _sizes_of_files(root), _shared_state(root))


def _sizes_of_files(root: Path) -> StoreSettings:
    """Read the fixed settings off the files: the size that most of them have, so that a short one is found out."""
    usual = StoreConfig()
    log_bytes = _most_common_size((root / commit_log.DIRECTORY).glob(_FILES))
    queue_bytes = _most_common_size((root / consume_queue.DIRECTORY).glob(f"*/*/{_FILES}"))
    entries = queue_bytes // layout.CONSUME_QUEUE_ENTRY.size
    return StoreSettings(log_bytes or usual.commit_log_file_bytes, entries or usual.consume_queue_file_entries)


def _most_common_size(paths: Iterable[Path]) -> int:
    sizes = [size for path in sorted(paths) if (size := path.stat().st_size)]
    return statistics.mode(sizes) if sizes else 0


def _shared_state(root: Path) -> SharedState | None:
    state = shared_state.leftover(root, writable=False)
    try:
        return state if state is not None and believable(state, root) else None
    except FileNotFoundError:  # without a lock file nobody can tell who used the store last
        return None


def _queues(state: SharedState) -> Iterator[tuple[MessageQueue, tuple[int, int]]]:
    for slot in range(state.queue_count):
        at = queue_slot_at(slot)
        topic = state.text(at + _QUEUE["topic"], state.words.load32(at + _QUEUE["topic_size"]))
        bounds = state.words.load(at + _QUEUE["min_offset"]), state.words.load(at + _QUEUE["max_offset"])
        yield MessageQueue(topic, state.words.load32(at + _QUEUE["queue_id"])), bounds


def _durable_mark(root: Path, begin: int) -> int:
    _, low_water = checkpoint.read(root)
    return max(low_water.flushed_to, begin) if low_water is not None else begin


def _has_topic(record: Record) -> bool:
    """Tell whether the topic can be a directory. Only this library's CRC covers it, that of a broker does not."""
    try:
        topic = record.message.topic
    except UnicodeDecodeError:
        return False
    return topic not in {"", ".", ".."} and "/" not in topic and "\0" not in topic
