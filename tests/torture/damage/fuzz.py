"""Mutated bytes for everything that reads bytes: records, files, configuration, filters, bodies.

Each parser gets valid input in which bytes, lengths and whole pieces were changed. It may say that the input is bad, in
the way its docstring says. It must not crash, take more than a second or 64 MB, or raise anything else; and the kernel
must not take anything for a record that the slow reference codec does not take for the same one.

With the kernel's memory accesses checked by the compiler's sanitizers, in a copy of the repository::

    CFLAGS="-fsanitize=address,undefined -fno-omit-frame-pointer -g -O1" python setup.py -q build_ext --inplace --force
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \\
    ASAN_OPTIONS=detect_leaks=0:handle_segv=0:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1 \\
    RMQ_FUZZ_SANITIZED=1 PYTHONMALLOC=malloc python -m tests.torture fuzz --no-record

What a sanitizer finds ends the child, and so is an outcome; with ``RMQ_FUZZ_SANITIZED`` the memory is not measured,
because most of it is the sanitizer's.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rmqclient.calling.arguments import arguments_of
from rmqclient.errors import BodyDoesNotFit
from rmqclient.filters.tag import parse_tags
from rmqclient.message import ReceivedMessage
from rmqclient.store import TagSet, layout, open_store
from rmqclient.store.bodies import Compression, compress, open_body
from rmqclient.store.errors import BodyUnreadable, ConfigMismatch, StoreCorrupt, StoreUnusable
from rmqclient.store.files.file_lock import LockFile
from rmqclient.store.files.file_queue import FileQueue, MappingCache
from rmqclient.store.kernel._kernel import decode
from rmqclient.store.log import commit_log, index_file
from rmqclient.store.log.consume_queue import ConsumeQueue
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.recovery import group_progress
from rmqclient.store.runtime import shared_state
from rmqclient.store.settings import checkpoint, config_file, document, store_settings
from rmqclient.store.settings.config_file import TopicConfig
from rmqclient.store.settings.topic_table import TopicTable
from tests.support.oracle import reference
from tests.support.received import received
from tests.torture.damage import sandbox, specimens
from tests.torture.damage.specimens import CONFIG, FILE_BYTES, GROUP, Specimen
from tests.torture.result import Result, Rig

CLAIM = "No input makes a parser crash, hang, grow, or raise what it does not document."

LONGEST_S = 1.0
MOST_KB = 64 << 10
_ENTRY = layout.CONSUME_QUEUE_ENTRY.size
_IS_SANITIZED = "RMQ_FUZZ_SANITIZED" in os.environ


@dataclass(frozen=True, slots=True)
class Parser:
    """One parser. ``one`` makes one input from the random numbers, and has it read."""

    name: str
    one: Callable[[random.Random], object]
    batch: int
    """Inputs of one case."""
    documented: tuple[type[Exception], ...] = ()
    """What it may raise."""


# --- mutations ------------------------------------------------------------------------------------

_NUMBERS = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
_SIZES = (1, 2, 4, 8)


def mutate(content: bytearray, rng: random.Random) -> None:
    """Change some bytes in place: random ones, bits, numbers at the edge of their range, near ones, and copies."""
    length = len(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8)) if length > 8 else 0):
        at = rng.randrange(length - 8)
        choice = rng.random()
        if choice < 0.3:
            content[at] = rng.randrange(256)
        elif choice < 0.5:
            content[at] ^= 1 << rng.randrange(8)
        elif choice < 0.7:
            size = rng.choice(_SIZES)
            content[at : at + size] = (rng.choice(_NUMBERS) % 256**size).to_bytes(size, "big")
        elif choice < 0.9:  # a length that is a little off
            size = rng.choice(_SIZES)
            near = int.from_bytes(content[at : at + size], "big") + rng.randint(-3, 3)
            content[at : at + size] = (near % 256**size).to_bytes(size, "big")
        else:
            source, size = rng.randrange(length), rng.randint(1, 32)
            piece = content[source : min(source + size, length - at + source)]
            content[at : at + len(piece)] = piece


def _text_mutated(text: bytes, tokens: list[bytes], rng: random.Random) -> bytes:
    """Cut, double and insert pieces; lengths change."""
    found = bytearray(text)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        choice = rng.random()
        if choice < 0.3:
            found[at:at] = rng.choice(tokens)
        elif choice < 0.5 and (numbers := list(re.finditer(rb"[0-9]+", found))):
            number = rng.choice(numbers)
            found[number.start() : number.end()] = rng.choice(tokens)
        elif choice < 0.7:
            del found[at : at + rng.randint(1, 20)]
        elif choice < 0.9:
            found[at:at] = found[rng.randrange(len(found) + 1) :][: rng.randint(1, 200)]
        else:
            mutate(found, rng)
    return bytes(found)


# --- the parsers ----------------------------------------------------------------------------------


class Parsers:
    """All parsers, over files in one directory."""

    def __init__(self, directory: Path) -> None:
        self._specimens = {
            with_crc: specimens.make(directory / f"crc-{with_crc}", with_crc=with_crc) for with_crc in (True, False)
        }
        self._records = [
            (specimen.log_bytes(offset, record.size), offset)
            for specimen in self._specimens.values()
            for offset, record in specimen.records.items()
            if record.size < 1_000
        ]
        ours = self._specimens[True]
        self._root = ours.root
        mappings = MappingCache(64)
        self._log = FileQueue(ours.root / "commitlog", FILE_BYTES, scratch=ours.root, mappings=mappings)
        queue = specimens.CONFIG.consume_queue_file_entries * _ENTRY
        self._queue = ConsumeQueue(
            FileQueue(ours.root / "consumequeue" / "left" / "0", queue, scratch=ours.root, mappings=mappings)
        )
        self._json = {path: content for path, content in ours.files.items() if path.suffix == ".json"}
        self._decoders = [arguments_of(handler).decode for handler in (_plain, _nested, _structure)]
        self._opened: dict[int, Any] = {}

    def all(self) -> list[Parser]:
        """Return every parser."""
        return [
            Parser("record", self.record, 4_000),
            Parser("record with its CRC put right", self.signed_record, 1_000),
            Parser("record against the reference", self.compared_record, 400),
            Parser("pickled message", self.pickled, 1_000, (ValueError,)),
            Parser("commit log", self.walk, 50, (StoreCorrupt,)),
            Parser("entry, by a consumer", self.take, 200),
            Parser("consume queue", self.consume_queue, 200, (FileNotFoundError,)),
            Parser("index file", self.index, 100),
            Parser("checkpoint", self.checkpoint, 200),
            Parser("config file", self.config, 200, (StoreCorrupt, ConfigMismatch)),
            Parser("runtime file", self.runtime, 20, (ConfigMismatch, StoreUnusable)),
            Parser("tag filter", self.tags, 1_000, (ValueError,)),
            Parser("body", self.body, 1_000, (BodyDoesNotFit,)),
            Parser("compressed body", self.compressed_body, 1_000, (BodyUnreadable,)),
        ]

    def record(self, rng: random.Random) -> None:
        """The kernel's record parser, and every field of what it takes for a record."""
        content, offset = self._mutated_record(rng)
        found = decode(content, 0, offset)
        if isinstance(found, ReceivedMessage):
            _read_all(found)

    def signed_record(self, rng: random.Random) -> None:
        """The same behind the CRC, which would stop most mutations."""
        content, offset = rng.choice(self._records)
        mutable = bytearray(content[: -layout.CRC_PROPERTY_SIZE])
        mutate(mutable, rng)
        mutable += reference._crc_property(bytes(mutable))
        found = decode(bytes(mutable), 0, offset)
        if isinstance(found, ReceivedMessage):
            _read_all(found)

    def compared_record(self, rng: random.Random) -> None:
        """What the kernel takes for a record, the reference takes for the same one."""
        content, offset = self._mutated_record(rng)
        found = decode(content, 0, offset)
        if isinstance(found, ReceivedMessage):
            expected = reference.decode(content, 0)
            assert isinstance(expected, reference.ReferenceRecord), f"no record: {content.hex()}"
            ours = (
                found.topic,
                found.queue_id,
                found.queue_offset,
                found.commit_log_offset,
                found.stored_body,
                found.size,
            )
            theirs = (expected.topic, expected.queue_id, expected.queue_offset, expected.commit_log_offset)
            assert ours == (*theirs, expected.body, expected.size), content.hex()
            assert (found.store_timestamp, found.flag) == (expected.store_timestamp, expected.flag), content.hex()

    def compressed_body(self, rng: random.Random) -> None:
        """What opens to something else than was compressed opens within its limit."""
        compression = rng.choice(list(Compression))
        packed = bytearray(compress(bytes(rng.randrange(100_000)) + rng.randbytes(50), compression))
        mutate(packed, rng)
        limit = rng.choice((10, 100_000, 1 << 20))
        assert len(open_body(bytes(packed), compression.value, limit)) <= limit

    def pickled(self, rng: random.Random) -> None:
        """What workers send each other."""
        content, offset = self._mutated_record(rng)
        whole = rng.choice(self._records)[0]
        message = decode(whole, 0, int.from_bytes(whole[28:36], "big"))
        assert isinstance(message, ReceivedMessage)
        make: Any = message.__reduce__()[0]
        make(bytes(content[: rng.choice((0, 1, 27, 35, 36, len(content)))]), MessageQueue("left", 0), offset % 5)

    def walk(self, rng: random.Random) -> None:
        """The walk over the log, the search for the next record, and a read at a random offset."""
        base = rng.choice((0, FILE_BYTES))
        view = memoryview(self._log.mapping(base))
        with _Changed(view, rng, FILE_BYTES - 16_000):
            for _ in commit_log.walk(self._log, rng.choice((0, base))):
                pass
            commit_log.next_record(self._log, rng.randrange(2 * FILE_BYTES), 2 * FILE_BYTES)
            commit_log.read(self._log, rng.randrange(2 * FILE_BYTES))

    def take(self, rng: random.Random) -> None:
        """A consumer over damaged entries; the log is whole, so that whatever it gets is a message of this queue."""
        if os.getpid() not in self._opened:
            store = open_store(self._root, housekeeping=False)
            slot = store.groups.find_or_add(GROUP, store.topics.slot(MessageQueue("left", 0)), 0)
            self._opened[os.getpid()] = (store, slot, memoryview(self._queue.files.mapping(0)))
        store, slot, view = self._opened[os.getpid()]
        with _Changed(view, rng, len(view)):
            slot.restore(0, 0, 1)
            grant = store.grants.grant(slot, 1, TagSet(rng.choice(((), ("one",)))))
            for message in grant.take(64, layout.ACK_WINDOW):
                assert (message.topic, message.body[:4]) in (("left", b"left"), ("left", b"the "))

    def consume_queue(self, rng: random.Random) -> None:
        """What recovery asks a consume queue."""
        view = memoryview(self._queue.files.mapping(rng.choice((0, 24 * _ENTRY))))
        with _Changed(view, rng, len(view)):
            self._queue.end_below(rng.choice((0, 1 << 20, 1 << 62)))
            self._queue.begin(rng.choice((0, 14_000, 1 << 40)))
            self._queue.entry(rng.choice((0, 5, 47, rng.randrange(1 << 40))))

    def index(self, rng: random.Random) -> None:
        """A search in an index file, and what recovery asks it."""
        size = CONFIG.index_slots, CONFIG.index_entries
        path = index_file.paths(self._root)[0]
        files = index_file.IndexFiles(self._root, *size, MappingCache(1))
        index = files.open(path)
        view = memoryview(index.mapping)
        with _Changed(view, rng, rng.choice((80, 400, len(view)))):
            found = list(files.candidates_in(path, rng.randrange(1 << 31), 0, 1 << 62))
            _ = (found, index.header, index.last_offset)
            index_file.summaries(self._root)

    def checkpoint(self, rng: random.Random) -> None:
        """Both low-water slots and the rest; a length that is not the right one, too."""
        path = self._root / checkpoint.FILE_NAME
        content = bytearray(self._specimens[True].files[path])
        for _ in range(rng.randint(1, 4)):
            part = rng.choice((0, *layout.LOW_WATER_AT))
            piece = bytearray(content[part : part + 44])
            mutate(piece, rng)
            content[part : part + 44] = piece
        path.write_bytes(content[: rng.choice((4096, 4096, 4096, 0, 100, 4095))])
        checkpoint.read(self._root)

    def config(self, rng: random.Random) -> None:
        """Every file of ``config/``, in JSON and in RocketMQ's dialect of it."""
        path = rng.choice(sorted(self._json))
        text = _text_mutated(self._json[path], _JSON_TOKENS, rng)
        path.write_bytes(text)
        try:
            document.parse(text, path)
            config_file.read_topics(self._root)
            config_file.read_consumer_offsets(self._root)
            store_settings.read_store_settings(self._root)
            config_file.write_topics(self._root, {"left": TopicConfig()}, now_ms=1)
            config_file.write_consumer_offsets(self._root, {("left", GROUP): {0: 7}})
        finally:
            for kept, content in self._json.items():
                kept.write_bytes(content)

    def runtime(self, rng: random.Random) -> None:
        """What an opener makes of a runtime file that is left, and of one that it attaches to."""
        specimen = self._specimens[True]
        try:
            with specimen.shared.open("r+b") as file:
                for _ in range(rng.randint(1, 3)):
                    start, size = rng.choice(specimens.RUNTIME_PARTS)
                    file.seek(start)
                    part = bytearray(file.read(size))
                    mutate(part, rng)
                    file.seek(start)
                    file.write(part)
            _use_leftover(self._root)
            shared_state.attach(self._root)
        finally:
            _put_back(specimen)

    def tags(self, rng: random.Random) -> None:
        """A filter expression."""
        pieces = rng.choices(
            ("||", "|", " ", "*", "tag", "ключ", "\0", "\x01", "\ud800", "\U0001f600", "a" * 2_000), k=rng.randint(0, 8)
        )
        found = parse_tags("".join(pieces))
        TagSet(found.tags)
        found.matches("tag")

    def body(self, rng: random.Random) -> None:
        """A body that a handler wants as a type."""
        text = json.dumps({"name": "n", "numbers": [1, 2], "inner": {"a": None}}).encode()
        message = received(_text_mutated(text, _JSON_TOKENS, rng))
        rng.choice(self._decoders)(message)

    def _mutated_record(self, rng: random.Random) -> tuple[bytes, int]:
        content, offset = rng.choice(self._records)
        mutable = bytearray(content)
        mutate(mutable, rng)
        if rng.random() < 0.1:
            del mutable[rng.randrange(len(mutable)) :]
        return bytes(mutable), offset


class _Changed:
    """A mapping with some bytes changed, until the block ends."""

    def __init__(self, view: memoryview, rng: random.Random, size: int) -> None:
        self._view, self._rng, self._size = view, rng, size
        self._kept: list[tuple[int, bytes]] = []

    def __enter__(self) -> None:
        for _ in range(self._rng.randint(1, 4)):
            at = self._rng.randrange(0, self._size - 40)
            piece = bytearray(self._view[at : at + 40])
            self._kept.append((at, bytes(piece)))
            mutate(piece, self._rng)
            self._view[at : at + 40] = piece[:40]

    def __exit__(self, *_: object) -> None:
        for at, piece in reversed(self._kept):
            self._view[at : at + 40] = piece


def _read_all(message: ReceivedMessage) -> None:
    assert message.topic.isascii()
    with suppress(BodyUnreadable):
        _ = message.body
    _ = (message.stored_body, message.tags, message.tags_code, message.keys, message.sharding_key, message.message_id)
    _ = (message.offset_message_id, message.properties, message.store_timestamp, message.delivery_attempt)
    assert len(message.record()) == message.size
    assert pickle.loads(pickle.dumps(message)).record() == message.record()
    repr(message)


def _use_leftover(root: Path) -> None:
    left = shared_state.leftover(root)
    if left is None:
        return
    lock = LockFile(root / "lock")
    topics = TopicTable(root, left, lock, 100)
    lock.close()
    topics.all_queues()
    if shared_state.has_sound_offsets(left):
        group_progress.finish_seeks(left, 100)
        group_progress.progress_of(left, topics, 100)


def _put_back(specimen: Specimen) -> None:
    at = 0
    with specimen.shared.open("r+b") as file:
        for start, size in specimens.RUNTIME_PARTS:
            file.seek(start)
            file.write(specimen.runtime[at : at + size])
            at += size


_JSON_TOKENS = [
    *(b"{ } [ ] : , \" \\ \\u0000 \\ud800 null true -1 1e999 0.5 {1:2} {{\"a\":1}:2} \t //".split()),
    b"\xff\xfe", b"\xf0\x9f\x98\x80",
    b"[" * 600 + b"]" * 600, b'{"a":' * 600 + b"1" + b"}" * 600, b"[" * 990 + b"]" * 990,
    b"[" * 1_100, b'{"a":' * 1_100, b"9" * 30, b"9" * 5_000, b"2147483647", b"-9223372036854775809",
    b'"readQueueNums":',
    b'"orders@billing":{0:5,1:7}', b"{" * 20_000, b'"' * 999,
]  # fmt: skip


class _Order(msgspec.Struct):
    name: str
    numbers: list[int]
    inner: dict[str, float | None]


def _plain(body: dict) -> None:  # type: ignore[type-arg]
    del body


def _nested(body: list[dict[str, int]]) -> None:
    del body


def _structure(body: _Order) -> None:
    del body


# --- the rig --------------------------------------------------------------------------------------


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Give each parser so many batches of inputs."""
    fast = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else scratch
    with tempfile.TemporaryDirectory(prefix="rmq-fuzz-", dir=fast) as directory:
        return _judged(Parsers(Path(directory)).all(), seed, rounds)


def _judged(parsers: list[Parser], seed: int, rounds: int) -> Result:
    result = Result(CLAIM)
    inputs: Counter[str] = Counter()
    longest: Counter[str] = Counter()
    for parser in parsers:
        started = time.monotonic()

        def batch(number: int, parser: Parser = parser) -> str:
            return _batch(parser, seed + number)

        for number, outcome in sandbox.outcomes(rounds, batch, 60):
            if sandbox.ending(outcome) or outcome.startswith("!"):
                result.problems.append(f"{parser.name}, seed {seed + number}: {outcome}")
            else:
                longest[parser.name] = max(longest[parser.name], int(outcome))
            inputs[parser.name] += parser.batch
        rate = inputs[parser.name] / (time.monotonic() - started)
        result.figures[f"{parser.name}: inputs"] = inputs[parser.name]
        result.figures[f"{parser.name}: inputs/s"] = round(rate)
        result.figures[f"{parser.name}: longest, us"] = longest[parser.name]
    result.figures["inputs"] = sum(inputs.values())
    return result


def _batch(parser: Parser, seed: int) -> str:
    """Return the longest time of an input in microseconds, or what was wrong after ``!``."""
    rng = random.Random(f"{parser.name} {seed}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    longest = 0.0
    for number in range(parser.batch):
        started = time.process_time()
        try:
            parser.one(rng)
        except parser.documented:
            pass
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            return f"! input {number}: {type(error).__name__}: {error!s:.300}".replace("\n", " ")
        longest = max(longest, time.process_time() - started)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if longest > LONGEST_S:
        return f"! an input took {longest:.1f} s"
    if grown > MOST_KB and not _IS_SANITIZED:
        return f"! {grown} kB more memory"
    return str(round(longest * 1_000_000))


RIG = Rig("fuzz", 1_000, run)
