"""The files of ``<root>/config`` that RocketMQ reads too, and ``<root>/store.json``, which is ours alone.

===============================  ==========================================================  =====================
file                             what it says                                                RocketMQ's class
===============================  ==========================================================  =====================
``config/topics.json``           every topic: queues, permission                             ``TopicConfigManager``
``config/consumerOffset.json``   committed offset of each group in each message queue        ``ConsumerOffsetManager``
``config/delayOffset.json``      next message to deliver, of each delay level                ``ScheduleMessageService``
``store.json``                   settings fixed when the directory was made                  (its ``broker.conf``)
``timer.done``                   which messages of the timer are done: store/waiting/timer_restore.py
===============================  ==========================================================  =====================

**Writing.** The new text goes to ``<file>.tmp`` and to the disk, the old one to ``<file>.bak``, then one rename puts
the new one in place and the directory is flushed. There is always a whole file under the name; RocketMQ
(``MixAll.string2File``) deletes before it renames and flushes nothing. An old text that does not parse does not
replace the ``.bak``, which may be the only good one. Writers hold ``TOPIC_BYTE`` of
:mod:`rmqclient.store.files.file_lock`.

**Reading.** ``<file>``; if it is missing, empty or damaged, ``<file>.bak``; if both are missing or empty, nothing was
configured (``ConfigManager.load``). Damaged and no good ``.bak`` is :class:`StoreCorrupt`: RocketMQ would start with an
empty configuration and then save that.

**The dialect.** RocketMQ 4.9 pretty-prints with tabs and ``"key":value``, and writes maps with integer keys unquoted,
``{0:5,1:7}``, which is not JSON. That is read; what is written here is JSON, with quoted integer keys, which
a broker also reads. The other oddity, maps whose keys are objects, is only in the ``offsets.json`` of broadcast
consumers and is refused.

Whatever a broker wrote and this module does not know, it keeps: topics, groups, fields.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from rmqclient.store import layout
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import ConfigMismatch, InvalidName, StoreCorrupt, store_errors
from rmqclient.store.files.file_system import check_plain
from rmqclient.store.files.mapped_file import make_directory, scratch_name, sync_directory
from rmqclient.store.message_queue import is_name

_log = logging.getLogger(__name__)

TOPICS_FILE = Path("config", "topics.json")
DELAY_OFFSETS_FILE = Path("config", "delayOffset.json")
CONSUMER_OFFSETS_FILE = Path("config", "consumerOffset.json")
STORE_SETTINGS_FILE = Path("store.json")
STORE_FORMAT_VERSION = 1

TIMER_DONE_FILE = Path("timer.done")

_TEMPORARY_POINTS = {
    TIMER_DONE_FILE.name: CrashPoint.TIMER_DONE_TEMPORARY,
    CONSUMER_OFFSETS_FILE.name: CrashPoint.OFFSETS_TEMPORARY,
    DELAY_OFFSETS_FILE.name: CrashPoint.DELAY_OFFSETS_TEMPORARY,
}

_LARGEST_INT = 2**31 - 1
_DEEPEST = 32
"""Levels of nesting; what is kept of a file is written level by level."""

# --- topics ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic as RocketMQ's ``TopicConfig`` has it, with the defaults of that class."""

    read_queue_count: int = 16
    """Queues that consumers see. [readQueueNums]"""

    write_queue_count: int = 16
    """Queues that producers see. [writeQueueNums]"""

    perm: int = 6
    """Bits: 4 read, 2 write, 1 inherit."""

    order: bool = False
    """Whether the topic was made for ordered messages; RocketMQ's store does not look at it."""

    topic_filter_type: str = "SINGLE_TAG"
    """``SINGLE_TAG`` or ``MULTI_TAG``."""

    topic_sys_flag: int = 0
    """Bits: 1 unit, 2 subscription of a unit."""

    cleanup_policy: str = "delete"
    """``delete`` or ``compact``; RocketMQ 5 has it as an attribute of the topic, and 4.9 does not know it."""


_TOPIC_KEYS: tuple[tuple[str, str, type], ...] = (
    ("read_queue_count", "readQueueNums", int),
    ("write_queue_count", "writeQueueNums", int),
    ("perm", "perm", int),
    ("order", "order", bool),
    ("topic_filter_type", "topicFilterType", str),
    ("topic_sys_flag", "topicSysFlag", int),
)


_POLICY = "cleanup.policy"
_POLICIES = {"delete": "DELETE", "compact": "COMPACTION"}
"""RocketMQ 5's words (CleanupPolicy)."""


def read_topics(root: Path) -> dict[str, TopicConfig]:
    """Return the topics of the store by name, in the order of the file; none when there is no file.

    A broker also keeps entries for itself and its cluster there, named after hosts. Those whose name is outside
    the alphabet of topics are left out (and kept in the file).

    Raises:
        StoreCorrupt: damaged without a good ``.bak``, or an entry has a value of the wrong kind.
    """
    path = root / TOPICS_FILE
    table = _table(path, read(path) or {}, "topicConfigTable")
    return {name: _topic_config(path, name, entry) for name, entry in table.items() if is_name(name)}


def write_topics(root: Path, topics: Mapping[str, TopicConfig], *, now_ms: int | None = None) -> None:
    """Write ``topics`` over the entries of the same name and keep all others; count the data version up by one.

    Args:
        root: the store directory.
        topics: what to add or to change; a topic that is not in it stays.
        now_ms: time stamp of the new data version, epoch milliseconds; the present by default.

    Raises:
        InvalidName: nothing was written.
        StoreCorrupt: the present file is damaged without a good ``.bak``; nothing was written.
        StoreFull: no room; the present file is untouched.
    """
    for name in topics:
        if not is_name(name):
            raise InvalidName(f"topic {name!r}: not 1 to 127 characters of %|a-zA-Z0-9_-")
    path = root / TOPICS_FILE
    document = read(path) or {}
    table = _table(path, document, "topicConfigTable")
    for name, config in topics.items():
        fields = {key: getattr(config, attribute) for attribute, key, _ in _TOPIC_KEYS}
        kept = _fields(path, name, table.get(name, {}))
        table[name] = {**kept, **fields, **_attributes(path, name, kept, config), "topicName": name}
    document["topicConfigTable"] = table
    document["dataVersion"] = _next_version(path, document, time.time_ns() // 1_000_000 if now_ms is None else now_ms)
    write(path, render(document))


def _topic_config(path: Path, name: str, entry: object) -> TopicConfig:
    fields = _fields(path, name, entry)
    values: dict[str, Any] = {}
    for attribute, key, kind in _TOPIC_KEYS:
        if key in fields:
            if not _is_valid(fields[key], kind):
                raise StoreCorrupt(path, 0, f"topic {name}: {key} is {fields[key]!r}")
            if key in ("readQueueNums", "writeQueueNums") and fields[key] > layout.QUEUE_SLOTS:
                raise StoreCorrupt(
                    path, 0, f"topic {name}: {key} is {fields[key]}: a store has at most {layout.QUEUE_SLOTS} queues"
                )
            values[attribute] = fields[key]
    attributes = _fields(path, f"topic {name}: attributes", fields.get("attributes", {}))
    is_compact = attributes.get(_POLICY) == _POLICIES["compact"]
    return TopicConfig(**values, cleanup_policy="compact" if is_compact else "delete")


def _attributes(path: Path, name: str, kept: dict[str, Any], config: TopicConfig) -> dict[str, Any]:
    attributes = _fields(path, f"topic {name}: attributes", kept.get("attributes", {}))
    if config.cleanup_policy == "delete" and _POLICY not in attributes:
        return {}  # as a 4.9 broker writes it
    return {"attributes": {**attributes, _POLICY: _POLICIES[config.cleanup_policy]}}


def _is_valid(value: object, kind: type) -> bool:
    if type(value) is not kind:  # not isinstance: true is no number of queues
        return False
    return not isinstance(value, int) or 0 <= value <= _LARGEST_INT


def _next_version(path: Path, document: dict[str, Any], now_ms: int) -> dict[str, Any]:
    version = _table(path, document, "dataVersion")
    counter = version.get("counter", 0)
    if type(counter) is not int:
        raise StoreCorrupt(path, 0, f"dataVersion: counter is {counter!r}")
    return {**version, "counter": counter + 1, "timestamp": now_ms}


# --- consumer offsets -----------------------------------------------------------------------------


def read_consumer_offsets(root: Path) -> dict[tuple[str, str], dict[int, int]]:
    """Return ``{(topic, group): {queue id: next queue_offset to consume}}``; nothing when there is no file.

    Keys that are not ``topic@group`` with names of the usual alphabet are left out, and so are negative offsets,
    which mean that nothing was committed.

    Raises:
        StoreCorrupt: damaged without a good ``.bak``, or an offset is not an integer.
    """
    path = root / CONSUMER_OFFSETS_FILE
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    for key, entry in _table(path, read(path) or {}, "offsetTable").items():
        names = key.split("@")
        if len(names) == 2 and all(is_name(name) for name in names):
            offsets[names[0], names[1]] = _queue_offsets(path, key, entry)
    return offsets


def write_consumer_offsets(
    root: Path,
    offsets: Mapping[tuple[str, str], Mapping[int, int]],
    announce: Callable[[int], None] = lambda _: None,
) -> int:
    """Write ``offsets`` over those of the same queues, keep all others, and return the digest of the new file.

    The digest is what :func:`consumer_offsets_digest` returns until somebody else writes the file. ``announce`` gets it
    before the file is written, so that a process killed in between leaves a file whose digest was announced.

    Raises:
        InvalidName: a topic or group with characters that would break the key; nothing was written.
        StoreCorrupt: the present file is damaged without a good ``.bak``; nothing was written.
        StoreFull: no room; the present file is untouched.
    """
    path = root / CONSUMER_OFFSETS_FILE
    document = read(path) or {}
    table = _table(path, document, "offsetTable")
    for (topic, group), queues in offsets.items():
        if not (is_name(topic) and is_name(group)):
            raise InvalidName(f"topic {topic!r}, group {group!r}: not 1 to 127 characters of %|a-zA-Z0-9_-")
        key = f"{topic}@{group}"
        kept = _fields(path, key, table.get(key, {}))
        table[key] = {**kept, **{str(queue_id): offset for queue_id, offset in queues.items()}}
    document["offsetTable"] = table
    text = render(document)
    announce(_digest(text))
    write(path, text)
    return _digest(text)


def consumer_offsets_digest(root: Path) -> int:
    """Return a 64-bit digest of the bytes of ``consumerOffset.json``, never 0 unless the file is missing or empty.

    It tells whether somebody else, such as a broker, wrote the file since it was last read or written here. Take it
    before reading the file: then a change in between is seen the next time, and not never.
    """
    return _digest(_content(root / CONSUMER_OFFSETS_FILE))


def _queue_offsets(path: Path, key: str, entry: object) -> dict[int, int]:
    offsets: dict[int, int] = {}
    for queue_id, offset in _fields(path, key, entry).items():
        if type(offset) is not int or not re.fullmatch("[0-9]{1,10}", queue_id):
            raise StoreCorrupt(path, 0, f"{key}: queue {queue_id!r} has offset {offset!r}")
        if offset >= 0:
            offsets[int(queue_id)] = offset
    return offsets


def _digest(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") or 1 if text else 0


# --- delay levels ---------------------------------------------------------------------------------


def read_delay_offsets(root: Path) -> dict[int, int]:
    """Return ``{delay level: queue_offset of the next message to deliver}``; nothing when there is no file.

    Raises:
        StoreCorrupt: damaged without a good ``.bak``, or an offset is not an integer.
    """
    path = root / DELAY_OFFSETS_FILE
    return _queue_offsets(path, "offsetTable", _table(path, read(path) or {}, "offsetTable"))


def write_delay_offsets(root: Path, offsets: Mapping[int, int]) -> None:
    """Write ``offsets`` over those of the same delay levels, and keep all others.

    Raises:
        StoreCorrupt: the present file is damaged without a good ``.bak``; nothing was written.
        StoreFull: no room; the present file is untouched.
    """
    path = root / DELAY_OFFSETS_FILE
    document = read(path) or {}
    kept = _table(path, document, "offsetTable")
    document["offsetTable"] = {**kept, **{str(level): offset for level, offset in offsets.items()}}
    write(path, render(document))


# --- fixed settings -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What is fixed for the life of a store directory."""

    commit_log_file_bytes: int
    """Size of each commit log file. [mappedFileSizeCommitLog]"""

    consume_queue_file_entries: int
    """Entries in each consume queue file. [mappedFileSizeConsumeQueue / 20]"""

    index_slots: int = 100_000
    """Hash slots in each index file. [maxHashSlotNum]"""

    index_entries: int = 400_000
    """Room for entries in each index file. [maxIndexNum]"""


def read_store_settings(root: Path) -> StoreSettings | None:
    """Return the fixed settings of the directory, ``None`` when it has no ``store.json``.

    Nothing is guessed: wrong file sizes would make RocketMQ and this library delete good files.

    Raises:
        ConfigMismatch: not readable, of another format version, or with other fields than this version writes.
    """
    path = root / STORE_SETTINGS_FILE
    try:
        document = orjson.loads(_content(path, missing=b"null"))
    except orjson.JSONDecodeError as error:
        raise ConfigMismatch(f"{path}: not readable: {error}") from error
    return None if document is None else _store_settings(path, document)


def write_store_settings(root: Path, settings: StoreSettings) -> None:
    """Write ``store.json``.

    Raises:
        StoreFull: no room; the present file is untouched.
    """
    document = {**asdict(settings), "format_version": STORE_FORMAT_VERSION}
    write(root / STORE_SETTINGS_FILE, render(document))


_ADDED_LATER = {"index_slots", "index_entries"}
"""A store that was made without them has their defaults."""


def _store_settings(path: Path, document: object) -> StoreSettings:
    if not isinstance(document, dict) or document.get("format_version") != STORE_FORMAT_VERSION:
        raise ConfigMismatch(f"{path}: not of format version {STORE_FORMAT_VERSION}")
    fields = {name: value for name, value in document.items() if name != "format_version"}
    named = set(StoreSettings.__dataclass_fields__)
    if not named - _ADDED_LATER <= set(fields) <= named:
        raise ConfigMismatch(f"{path}: has the fields {', '.join(sorted(fields))}")
    for name, value in fields.items():
        if not _is_valid(value, int) or value == 0:
            raise ConfigMismatch(f"{path}: {name} is {value!r}")
    return StoreSettings(**fields)


# --- any config file ------------------------------------------------------------------------------


def read(path: Path) -> dict[str, Any] | None:
    """Return the object that ``path``, or else its ``.bak``, holds; ``None`` when both are missing or empty.

    Raises:
        StoreCorrupt: at least one of them is damaged and none can be read.
        StoreUnusable: one of them is not a regular file, or may not be read.
    """
    damage: StoreCorrupt | None = None
    for candidate in (path, _beside(path, ".bak")):
        text = _content(candidate)
        if not text.strip():
            continue
        try:
            document = parse(text, candidate)
        except StoreCorrupt as error:
            damage = damage or error
            continue
        if damage is not None:
            _log.warning("%s; %s was read instead", damage, candidate)
        return document
    if damage is not None:
        raise damage
    return None


def write(path: Path, text: bytes) -> None:
    """Replace ``path`` by ``text`` so that a crash leaves the old or the new one, and keep the old one as ``.bak``.

    Makes the directory, mode 0700, if it is missing.

    Raises:
        StoreFull: no room; ``path`` is untouched.
    """
    with store_errors(f"{path} cannot be written"):
        if not path.parent.is_dir():
            make_directory(path.parent)
            sync_directory(path.parent.parent)
    old = _content(path)
    if old.strip() and _parses(old, path):
        _replace(_beside(path, ".bak"), old)
    _replace(path, text)
    _sync_name(path)


def content(path: Path) -> bytes:
    """Return the bytes of a plain file; none when it is missing. Raises StoreUnusable, DiskFailed."""
    return _content(path)


def replace_file(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` so that a crash leaves the old or the new one; no ``.bak``, any content.

    Any number of writers may do it at once; one of them is the last. ``path`` stands in the root of the store, where
    :func:`rmqclient.store.files.mapped_file.remove_scratch` removes what a killed one leaves.

    Raises:
        StoreFull: no room; ``path`` is untouched.
    """
    _write_and_rename(scratch_name(path.parent), path, content)
    _sync_name(path)


def _sync_name(path: Path) -> None:
    with store_errors(f"{path} is replaced, and its name may be lost at a power cut"):
        sync_directory(path.parent)


def parse(text: bytes, path: Path) -> dict[str, Any]:
    """Return the object that ``text`` is, with integer keys as strings; ``path`` is only for messages.

    Raises:
        StoreCorrupt: not JSON in RocketMQ's dialect, not an object, or nested deeper than any of these files is.
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        document = _parse_dialect(text, path)
    if not isinstance(document, dict):
        raise StoreCorrupt(path, 0, "not a JSON object")
    if _nests_deeper(document, _DEEPEST):
        raise StoreCorrupt(path, 0, f"nested deeper than {_DEEPEST} levels")
    return document


def render(document: Mapping[str, Any]) -> bytes:
    """Return ``document`` as RocketMQ would print it, keys sorted (integers by value), without a final newline."""
    return _rendered(document, "\n").encode()


def _nests_deeper(value: object, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_nests_deeper(element, levels - 1) for element in inner)


# --- the dialect ----------------------------------------------------------------------------------

_DIALECT = re.compile(
    rb"""
      (?P<string> " [^"\\]* (?: \\. [^"\\]* )* (?: " | \\?\Z ) )  # whole, even unterminated: nothing in it is looked at
    | (?P<before> [{,]\s* ) (?P<key> -?[0-9]+ ) (?= \s*: )
    | (?P<object_key> \{\s*\{ )
    """,
    re.VERBOSE | re.DOTALL,
)


def _parse_dialect(text: bytes, path: Path) -> object:
    quoted_at: list[int] = []

    def quote(token: re.Match[bytes]) -> bytes:
        if token["object_key"] is not None:
            raise StoreCorrupt(path, token.start(), "a map whose keys are objects, as in offsets.json: not supported")
        if token["key"] is None:
            return token[0]
        quoted_at.append(token.start("key") + 2 * len(quoted_at))
        return b'%s"%s"' % (token["before"], token["key"])

    quoted = _DIALECT.sub(quote, text)
    try:
        return orjson.loads(quoted)
    except orjson.JSONDecodeError as error:
        position = len(error.doc[: error.pos].encode())
        position -= 2 * bisect.bisect_left(quoted_at, position)
        raise StoreCorrupt(path, position, error.msg) from error


def _rendered(value: object, newline: str) -> str:
    if isinstance(value, Mapping) and value:
        inner = newline + "\t"
        fields = (
            f"{inner}{orjson.dumps(key).decode()}:{_rendered(value[key], inner)}" for key in sorted(value, key=_order)
        )
        return "{" + ",".join(fields) + newline + "}"
    if isinstance(value, list):
        return "[" + ",".join(_rendered(element, newline) for element in value) + "]"
    return orjson.dumps(value).decode()


def _order(key: str) -> tuple[bool, int, str]:
    number = re.fullmatch("-?[0-9]{1,19}", key)
    return (number is None, int(key) if number else 0, key)


def _parses(text: bytes, path: Path) -> bool:
    try:
        parse(text, path)
    except StoreCorrupt:
        return False
    return True


def _table(path: Path, document: dict[str, Any], name: str) -> dict[str, Any]:
    return _fields(path, name, document.get(name, {}))


def _fields(path: Path, name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise StoreCorrupt(path, 0, f"{name} is {value!r:.40}, not an object")
    return value


# --- bytes and files ------------------------------------------------------------------------------


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _content(path: Path, missing: bytes = b"") -> bytes:
    # Not blocking, because somebody may have put a pipe there.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with store_errors(f"{path} cannot be read"):
        try:
            with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
                check_plain(path, os.fstat(file.fileno()))
                return file.read()
        except FileNotFoundError:
            return missing


def _replace(path: Path, content: bytes) -> None:
    _write_and_rename(_beside(path, ".tmp"), path, content)


def _write_and_rename(temporary: Path, path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with store_errors(f"{path} cannot be written"):
        try:
            temporary.unlink(missing_ok=True)  # never written through: it may be a link to another file
            with open(temporary, "wb", opener=lambda name, _: os.open(name, flags, 0o600)) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if path.name in _TEMPORARY_POINTS:
                reach(_TEMPORARY_POINTS[path.name])
            temporary.rename(path)
        except OSError:
            with contextlib.suppress(OSError):  # it is overwritten by the next write
                temporary.unlink(missing_ok=True)
            raise
