"""Recovers images and compares what is found with what is known.

The images of a run are put into one directory, one after the other, and only what differs is written, because most
files do not. What stands there is the real thing: recovery maps it, changes it, and is judged by the bytes it leaves.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from dataclasses import dataclass, field
from pathlib import Path

from rmqclient.store import Message, MessageQueue, MessageStore, StoreConfig, layout, open_store
from rmqclient.store.files.file_queue import MappingCache
from rmqclient.store.log.index_file import IndexFiles
from rmqclient.store.log.query import END_OF_TIME
from rmqclient.store.recovery import group_progress, opening, recovery
from rmqclient.store.recovery.recovery import FirstSteps, Recovered
from rmqclient.store.settings import config_file, store_settings
from tests.images.image import Image
from tests.images.ledger import Known, Ledger
from tests.images.workload import bytes_of
from tests.support.oracle import reference

RUNTIME = "shared"
_BLANK = struct.Struct(">iI")
_BLANK_MAGIC = 0xCBD43194
_ENTRY_BYTES = 20
_LARGEST_FILE = 1 << 20
_ASKED_FOR = 5
"""Records that are looked for by their keys in an image that is used."""


@dataclass(slots=True)
class Found:
    """What an image held after recovery."""

    records: list[Known] = field(default_factory=list)
    end: int = 0
    problems: list[str] = field(default_factory=list)


class Judge:
    """Judges images in one directory."""

    def __init__(self, directory: Path, config: StoreConfig) -> None:
        self.root = directory
        self._config = config
        self._there: dict[str, bytes] = {}
        directory.mkdir()

    def put(self, image: Image) -> None:
        """Make the directory hold the image, and nothing else."""
        for path in self._there.keys() - image.files.keys():
            (self.root / path).unlink()
            del self._there[path]
        for directory in sorted(image.directories):
            if not (self.root / directory).is_dir():
                (self.root / directory).mkdir(parents=True)
        for path, content in image.files.items():
            if self._there.get(path) != content:
                self._write(path, content)

    def recover(self) -> tuple[Recovered, list[str]]:
        """Recover what stands there as after a reboot; return what recovery says, and what it should not say."""
        log_files, queues = opening.files_of(self.root, self._config, MappingCache(256))
        chosen = recovery.plan_for(self.root, log_files, queues, FirstSteps())
        recovered = recovery.apply(chosen, self.root, log_files, queues)
        return recovered, [f"bytes {bad.start} to {bad.end} were taken for damage" for bad in chosen.quarantined]

    def judge(self, image: Image, ledger: Ledger, moment: int, *, twice: bool = False) -> Found:
        """Put an image there, recover it, and judge what is left."""
        self.put(image)
        try:
            return self._judge(ledger, moment, twice=twice)
        except Exception as error:  # noqa: BLE001 - whatever it is, recovery must not raise it
            self.look()
            return Found(problems=[f"recovery raised {error!r}"])

    def _judge(self, ledger: Ledger, moment: int, *, twice: bool) -> Found:
        recovered, problems = self.recover()
        before = self.look()
        found = self.judge_log(before, ledger, moment)
        found.problems += problems
        found.problems += judge_queues(before, found.records, self._config.consume_queue_file_bytes)
        found.problems += judge_frontiers(recovered, found)
        found.problems += self._judge_config(ledger, moment, recovered)
        if twice:
            found.problems += judge_index(self.root, self._config, found.records, recovered.plan.indexed_to)
            self.recover()
            after = self.look()
            changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
            if any(path.startswith(("commitlog/", "consumequeue/")) for path in changed):
                found.problems.append(f"a second recovery changed {changed}")
        return found

    def judge_log(self, files: dict[str, bytes], ledger: Ledger, moment: int) -> Found:
        """Compare the commit log with the records that are known."""
        log = {int(path[-20:]): content for path, content in files.items() if path.startswith("commitlog/")}
        found = walk_known(log, ledger, moment)
        base = found.end - found.end % ledger.file_bytes
        above = [number for number in log if number > base]
        if above:
            found.problems.append(f"commit log files {above} stand above the end at {found.end}")
        if log.get(base, b"")[found.end - base :].strip(b"\0"):
            found.problems.append(f"what stands at {found.end} is no record that is known at moment {moment}")
        promised = ledger.promised.at(moment)
        if found.end < promised:
            found.problems.append(f"the log ends at {found.end}, and was promised up to {promised}")
        return found

    def open_and_use(
        self, image: Image, ledger: Ledger, moment: int, chance: random.Random, stale: bytes | None
    ) -> list[str]:
        """Open an image as an application does: read all, append, close.

        ``stale`` is a runtime file of another boot, which must not be believed.
        """
        self.put(image)
        if stale is not None:
            _put_runtime_file(self.root / RUNTIME, stale)
        try:
            return self._use(ledger, moment, chance)
        except Exception as error:  # noqa: BLE001 - whatever it is, opening must not raise it
            return [f"opening or using the store raised {error!r}"]
        finally:
            (self.root / RUNTIME).unlink(missing_ok=True)
            self.look()

    def _use(self, ledger: Ledger, moment: int, chance: random.Random) -> list[str]:
        with open_store(self.root, self._config, housekeeping=False) as store:
            found = self.judge_log(self.look(), ledger, moment)
            if found.problems:
                return found.problems
            if store.state.published_to < found.end:
                return [f"published up to {store.state.published_to} instead of {found.end}"]
            for number, known in enumerate(found.records):
                message = store.messages.at(known.queue, known.queue_offset)
                if message.record() != known.content:
                    return [f"message {known.queue_offset} of {known.queue} is not record {number} of the log"]
            problems = judge_groups(store, ledger, moment)
            for known in chance.sample(found.records, min(len(found.records), _ASKED_FOR)):
                by_id = store.messages.by_id(known.keys[0], known.queue.topic)
                if by_id is None or by_id.record() != known.content:
                    return [f"the record at {known.start} is not found by its unique key"]
                for key in known.keys[1:]:
                    expected = [
                        other.start
                        for other in reversed(found.records)
                        if other.queue.topic == known.queue.topic and key in other.keys
                    ]
                    by_key = store.messages.by_key(known.queue.topic, key, limit=1_000)
                    if [message.commit_log_offset for message in by_key] != expected:
                        return [f"not all records with key {key} of topic {known.queue.topic} are found"]
            topic = chance.choice(ledger.topics.at(moment) or ("returns",))
            appender = store.appenders.make(lambda name: store.topics.create(name, 2), bytes_of, prepare=False)
            result = appender.append(Message(topic, b"after the power cut"))
            count = sum(known.queue == result.queue for known in found.records)
            if result.queue_offset != count:
                problems.append(f"number {result.queue_offset} of {_name(result.queue)} was given instead of {count}")
        return problems + reference.check_store(self.root)

    def look(self) -> dict[str, bytes]:
        """Read what stands there."""
        self._there = {}
        self._look_at(str(self.root), "")
        return dict(self._there)

    def _look_at(self, path: str, prefix: str) -> None:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self._look_at(entry.path, f"{prefix}{entry.name}/")
                elif entry.name != RUNTIME:
                    descriptor = os.open(entry.path, os.O_RDONLY)
                    self._there[prefix + entry.name] = os.read(descriptor, _LARGEST_FILE)
                    os.close(descriptor)

    def _write(self, path: str, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT
        if len(self._there.get(path, content)) != len(content):
            flags |= os.O_TRUNC
        descriptor = os.open(f"{self.root}/{path}", flags, 0o600)
        os.write(descriptor, content)
        os.close(descriptor)
        self._there[path] = content

    def _judge_config(self, ledger: Ledger, moment: int, recovered: Recovered) -> list[str]:
        settings = store_settings.read_store_settings(self.root)
        if settings is None and ledger.is_made.at(moment):
            return ["store.json is gone"]
        missing = set(ledger.topics.at(moment)) - config_file.read_topics(self.root).keys()
        if missing:
            return [f"topics {sorted(missing)} are gone"]
        progress = {key: kept.committed_offset for key, kept in group_progress.progress_on_disk(self.root).items()}
        return judge_progress(progress, recovered.queues, ledger, moment)


def walk_known(log: dict[int, bytes], ledger: Ledger, moment: int) -> Found:
    """Walk over the records that are known; each must have the next number of its queue."""
    found = Found()
    counts: dict[MessageQueue, int] = {}
    promised = ledger.promised.at(moment)
    undone: Known | None = None
    while True:
        base = found.end - found.end % ledger.file_bytes
        content, at = log.get(base, b""), found.end - base
        known = next((one for one in ledger.known.get(found.end, ()) if content.startswith(one.content, at)), None)
        if known is None:
            if content[at : at + 8] != _BLANK.pack(ledger.file_bytes - at, _BLANK_MAGIC) or at + 8 > len(content):
                return found
            found.end = base + ledger.file_bytes
            continue
        number = counts.get(known.queue, 0)
        if known.queue_offset != number:
            found.problems.append(f"the record at {known.start} has number {known.queue_offset} instead of {number}")
        if known.replaced_at is not None and known.replaced_at <= moment:
            undone = known
            if known.end <= promised:
                found.problems.append(f"the record at {known.start} was undone, and another one promised in its place")
        elif undone is not None:
            found.problems.append(f"the record at {known.start} stands behind one that was undone at {undone.start}")
        counts[known.queue] = number + 1
        found.records.append(known)
        found.end = known.end


def judge_queues(files: dict[str, bytes], records: list[Known], queue_file_bytes: int) -> list[str]:
    """Compare every consume queue with the records."""
    expected: dict[str, list[bytes]] = {}
    for known in records:
        expected.setdefault(f"consumequeue/{known.queue.topic}/{known.queue.queue_id}", []).append(known.entry)
    present: dict[str, list[str]] = {}
    for path in sorted(path for path in files if path.startswith("consumequeue/")):
        present.setdefault(path[:-21], []).append(path)
    problems = []
    for queue in sorted({*expected, *present}):
        entries = b"".join(expected.get(queue, ()))
        paths = present.get(queue, [])
        content = b"".join(files[path] for path in paths)
        names = [int(path[-20:]) for path in paths]
        if names != [number * queue_file_bytes for number in range(len(names))]:
            problems.append(f"{queue} has the files {names}")
        if content[: len(entries)] != entries:
            at = next(at for at in range(0, len(entries), 20) if content[at : at + 20] != entries[at : at + 20])
            problems.append(f"entry {at // 20} of {queue} does not belong to its record")
        if content[len(entries) :].strip(b"\0"):
            problems.append(f"{queue} has more than the {len(entries) // _ENTRY_BYTES} entries of its records")
    return problems


def judge_index(root: Path, config: StoreConfig, records: list[Known], indexed_to: int) -> list[str]:
    """Everything below the record from which recovery will index again must be found in what it has kept."""
    files = IndexFiles(root, config.index_slots, config.index_entries, MappingCache(64))
    return [
        f"the record at {known.start} is not in the index, which was kept up to {indexed_to}"
        for known in records
        if known.start < indexed_to
        for key in known.keys
        if known.start not in files.candidates(known.queue.topic, key, 0, END_OF_TIME)
    ]


def judge_frontiers(recovered: Recovered, found: Found) -> list[str]:
    """Compare what recovery says of its end and of the queues with what stands there."""
    counts: dict[MessageQueue, int] = {}
    for known in found.records:
        counts[known.queue] = counts.get(known.queue, 0) + 1
    said = {queue: ends for queue, ends in recovered.queues.items() if ends != (0, 0)}
    problems = []
    if recovered.plan.log_end != found.end:
        problems.append(f"recovery says that the log ends at {recovered.plan.log_end}, and it ends at {found.end}")
    if said != {queue: (0, count) for queue, count in counts.items()}:
        problems += [
            f"recovery says {said.get(queue, (0, 0))} of {_name(queue)}, which holds {counts.get(queue, 0)}"
            for queue in sorted(said.keys() | counts.keys())
            if said.get(queue, (0, 0)) != (0, counts.get(queue, 0))
        ]
    return problems


def judge_progress(
    progress: dict[tuple[str, MessageQueue], int],
    queues: dict[MessageQueue, tuple[int, int]],
    ledger: Ledger,
    moment: int,
) -> list[str]:
    """A group goes on where it was durably noted to be, or later, and never above where it was or what exists."""
    problems = []
    for key in progress.keys() | ledger.floors.keys():
        low, high = queues.get(key[1], (0, 0))
        goes_on_at = min(max(progress.get(key, 0), low), high)
        ceiling = ledger.ceilings[key].at(moment) if key in ledger.ceilings else 0
        floor = ledger.floors[key].at(moment) if key in ledger.floors else 0
        if not min(floor, high) <= goes_on_at <= ceiling:
            where = f"{key[0]} in {_name(key[1])}"
            problems.append(f"{where} goes on at {goes_on_at} of {high}, and was between {floor} and {ceiling}")
    return problems


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.queue_id}"


def judge_groups(store: MessageStore, ledger: Ledger, moment: int) -> list[str]:
    """The same for an open store, from its group-queue table."""
    queues = {queue: (0, store.topics.max_offset(queue)) for queue in store.topics.all_queues()}
    progress = {(slot.group, store.topics.queue(slot.queue_slot)): slot.committed_offset for slot in store.groups}
    return judge_progress(progress, queues, ledger, moment)


def stale_runtime_file(root: Path) -> bytes:
    """Return the runtime file of a store as another boot would have left it."""
    content = bytearray((root / RUNTIME).read_bytes())
    at = layout.RUNTIME_HEADER.at["boot_id"]
    content[at : at + 36] = b"00000000-0000-4000-8000-000000000000"
    return bytes(content)


def _put_runtime_file(path: Path, content: bytes) -> None:
    """Write a runtime file that fits the store, so that only its boot tells that it is not to be believed."""
    path.write_bytes(content)
    status = path.stat()
    lock = path.with_name("lock")
    words = {
        "device": status.st_dev,
        "inode": status.st_ino,
        "lock_mtime": lock.stat().st_mtime_ns if lock.exists() else 0,
        "offsets_digest": config_file.consumer_offsets_digest(path.parent),
    }
    with path.open("r+b") as file:
        for name, value in words.items():
            file.seek(layout.RUNTIME_HEADER.at[name])
            file.write(struct.pack("=Q", value))


def materialise(image: Image, root: Path) -> None:
    """Write an image into a directory of its own, for a life to begin with."""
    shutil.rmtree(root, ignore_errors=True)
    for directory in ("", *sorted(image.directories)):
        (root / directory).mkdir(parents=True, exist_ok=True)
    for path, content in image.files.items():
        (root / path).write_bytes(content)
