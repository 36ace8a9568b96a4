"""Dump: the records of the commit log as JSON, one line each, in the order of the log.

===================  ===============  ==============================================================
key                  JSON             meaning
===================  ===============  ==============================================================
topic                string
queue_id             number
queue_offset         number           number of the message within its queue
commit_log_offset    number           first byte of the record in the commit log
store_timestamp      number           ms since the epoch
tags                 string or null
keys                 list of strings
properties           object           every property on disk but the CRC, tags and keys included
body                 string           base64 of the bytes on disk, which may be compressed
inner_messages       number or null   for a compressed batch only: its messages; null if it cannot be opened
===================  ===============  ==============================================================

The dump contains the records of every topic, including a broker's own topics and half messages. It keeps nothing in
memory, so the size of the store does not matter.

A single file of a store can be dumped, too. Its place and name tell its format. Each line then has its ``kind`` and
``position``, the byte in the file:

======================  ====================================================================================
file                    lines
======================  ====================================================================================
``commitlog/*``         ``record``, with the keys above, and ``blank``
``consumequeue/*/*/*``  ``entry`` for each entry that is not all zero
``checkpoint``          ``checkpoint`` and the ``low_water`` slots, with ``valid``
``index/*``             ``header``, and a ``slot`` or an ``entry`` for each one in use
``shared``              ``header``, and the slots in use: ``queue``, ``group_queue``, ``member``, ``worker``
``config/*``            the file as one line of strict JSON; also for ``store.json``
======================  ====================================================================================
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from rmqclient.store import layout
from rmqclient.store.errors import StoreCorrupt, StoreUnusable
from rmqclient.store.files.file_queue import FileQueue, MappingCache
from rmqclient.store.files.mapped_file import map_file
from rmqclient.store.inspect.reading import StoreReader, Tail, open_reader
from rmqclient.store.kernel._kernel import Mapping
from rmqclient.store.log import commit_log, consume_queue, index_file
from rmqclient.store.log.commit_log import describe
from rmqclient.store.log.inner_batch import is_batch, opened
from rmqclient.store.log.record import Blank, End, ReceivedMessage, Record
from rmqclient.store.recovery.log_scan import Quarantined
from rmqclient.store.runtime import shared_state
from rmqclient.store.settings import checkpoint, document, store_settings

Fields = dict[str, Any]


def dump(root: Path, lines: BinaryIO) -> Iterator[str]:
    """Write every record of the store in ``root`` as a line; yield a sentence for each damaged range on the way.

    Damaged ranges are skipped. Raises as :func:`rmqclient.store.inspect.reading.open_reader`, and OSError if ``lines``
    cannot be written; every line written before is whole.
    """
    reader = open_reader(root)
    for offset, step in reader.steps():
        match step:
            case Record(message=message):
                lines.write(line(message))
            case Quarantined() | Tail():
                yield _damage(reader, offset, step)


def line(message: ReceivedMessage) -> bytes:
    """Return one record as a JSON object and a newline."""
    return _as_line(_fields(message))


def _fields(message: ReceivedMessage) -> Fields:
    fields = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "commit_log_offset": message.commit_log_offset,
        "store_timestamp": message.store_timestamp,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "body": b2a_base64(message.stored_body, newline=False).decode("ascii"),
    }
    if is_batch(message):
        messages = opened(message)
        fields["inner_messages"] = None if is_batch(messages[0]) else len(messages)
    return fields


def _as_line(fields: Fields) -> bytes:
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def _damage(reader: StoreReader, offset: int, step: Quarantined | Tail) -> str:
    path, position = reader.place(offset)
    following = "skipped" if isinstance(step, Quarantined) else "no record follows"
    return f"{path}, byte {position}: {step.end - step.start} bytes are damaged ({step.reason}): {following}"


# --- one file -------------------------------------------------------------------------------------


def dump_file(path: Path, lines: BinaryIO) -> Iterator[str]:
    """Write the content of one file of a store; yield a sentence for each damaged range on the way.

    The file is only read. Raises StoreUnusable if its place and name are not those of a file of a store, StoreCorrupt
    if its size is wrong for its format or a JSON file cannot be parsed, OSError if it cannot be read.
    """
    for found in _reader_of(path.absolute())(path.absolute()):
        if isinstance(found, str):
            yield found
        else:
            lines.write(_as_line(found))


def _reader_of(path: Path) -> Callable[[Path], Iterator[Fields | str]]:
    directories = [directory.name for directory in path.parents]
    if path.name.isdigit():
        if directories[0] == commit_log.DIRECTORY:
            return _commit_log_file
        if directories[0] == index_file.DIRECTORY:
            return _index_file
        if directories[2:3] == [consume_queue.DIRECTORY]:
            return _consume_queue_file
    if path.name == checkpoint.FILE_NAME:
        return _checkpoint
    if path.name == shared_state.FILE_NAME:
        return _runtime_file
    if ".json" in path.suffixes:
        return _config_file
    raise StoreUnusable(
        f"{path} is not a file of a store, by its place and name: give one of commitlog, consumequeue/TOPIC/QUEUE, "
        "index or config, or checkpoint, shared, store.json"
    )


def _commit_log_file(path: Path) -> Iterator[Fields | str]:
    size, base = _size(path), int(path.name)
    files = FileQueue(path.parent, size, scratch=path.parent, mappings=MappingCache(1, writable=False))
    at = base
    while at < base + size:
        for offset, outcome in commit_log.walk(files, at, base + size):
            at = offset
            match outcome:
                case Record(message=message):
                    yield {"kind": "record", "position": offset - base, "size": outcome.size, **_fields(message)}
                case Blank():
                    yield {"kind": "blank", "position": offset - base, "size": outcome.size}
                    return
                case _:
                    following = commit_log.next_record(files, offset + 1, base + size)
                    if following is None and isinstance(outcome, End):
                        return
                    end = following or base + size
                    yield f"{path}, byte {offset - base}: {end - offset} bytes are not a record ({describe(outcome)})"
                    at = end
                    break
        else:
            return


def _consume_queue_file(path: Path) -> Iterator[Fields]:
    entry = layout.CONSUME_QUEUE_ENTRY
    mapping = map_file(path, _size(path), writable=False)
    for position in range(0, mapping.size - entry.size + 1, entry.size):
        fields = entry.read(mapping, position)
        if any(fields.values()):
            number = (int(path.name) + position) // entry.size
            yield {"kind": "entry", "position": position, "queue_offset": number, **fields}


def _index_file(path: Path) -> Iterator[Fields]:
    sizes = _index_sizes(path)
    index = index_file.IndexFile(path, map_file(path, index_file.file_bytes(*sizes), writable=False), *sizes)
    yield {"kind": "header", "position": 0, **layout.INDEX_HEADER.read(index.mapping)}
    for slot in range(index.slots):
        if number := index.slot(slot):
            position = layout.INDEX_HEADER.size + slot * layout.INDEX_SLOT_SIZE
            yield {"kind": "slot", "position": position, "slot": slot, "number": number}
    for number in range(1, min(index.header.next_number, index.entries)):
        position = index.position(number)
        yield {
            "kind": "entry",
            "position": position,
            "number": number,
            **layout.INDEX_ENTRY.read(index.mapping, position),
        }


def _index_sizes(path: Path) -> tuple[int, int]:
    settings = store_settings.read_store_settings(path.parent.parent)
    sizes = (settings.index_slots, settings.index_entries) if settings else index_file.sizes_in(path)
    if sizes is None:
        raise StoreCorrupt(path, 0, "its numbers of slots and entries are recorded nowhere")
    return sizes


def _checkpoint(path: Path) -> Iterator[Fields]:
    mapping = map_file(path, layout.CHECKPOINT_SIZE, writable=False)
    yield {"kind": "checkpoint", "position": 0, **layout.CHECKPOINT.read(mapping)}
    for position in layout.LOW_WATER_AT:
        fields = layout.LOW_WATER.read(mapping, position)
        yield {"kind": "low_water", "position": position, **fields, "valid": checkpoint.is_mark(mapping, position)}


def _runtime_file(path: Path) -> Iterator[Fields]:
    mapping = map_file(path, layout.RUNTIME_SIZE, writable=False)
    header = layout.RUNTIME_HEADER.read(mapping)
    yield {"kind": "header", "position": 0, **_readable(header)}
    tables = (
        ("queue", layout.QUEUE_TABLE_AT, layout.QUEUE_SLOT, layout.QUEUE_SLOTS, "topic_size"),
        ("group_queue", layout.GROUP_QUEUE_TABLE_AT, layout.GROUP_QUEUE_SLOT, layout.GROUP_QUEUE_SLOTS, "group_size"),
        ("member", layout.MEMBER_TABLE_AT, layout.MEMBER_SLOT, layout.MEMBER_SLOTS, "incarnation"),
        ("worker", layout.WORKER_TABLE_AT, layout.WORKER_SLOT, layout.WORKER_SLOTS, "incarnation"),
    )
    for kind, at, table, slots, used in tables:
        yield from _slots(mapping, kind, range(at, at + slots * table.size, table.size), table, used)


def _slots(mapping: Mapping, kind: str, positions: range, table: layout.Layout, used: str) -> Iterator[Fields]:
    for slot, position in enumerate(positions):
        fields = table.read(mapping, position)
        if fields[used]:
            yield {"kind": kind, "position": position, "slot": slot, **_readable(fields)}


def _readable(fields: Fields) -> Fields:
    """Leave out padding; show text as text, and other bytes as hexadecimal digits without the trailing zeros."""
    return {name: _text(value) for name, value in fields.items() if not name.startswith("_pad")}


def _text(value: object) -> object:
    if not isinstance(value, bytes):
        return value
    content = value.rstrip(b"\0")
    text = content.decode("ascii", "replace")
    return text if content.isascii() and text.isprintable() else content.hex()


def _config_file(path: Path) -> Iterator[Fields]:
    yield document.parse(document.content(path), path)


def _size(path: Path) -> int:
    size = path.stat().st_size
    if size == 0:
        raise StoreCorrupt(path, 0, "the file is empty")
    return size
