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
===================  ===============  ==============================================================

Records of every topic are there: those of a broker's own, too, and half messages. Nothing is collected, so the size of
the store does not matter.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import orjson

from store.reading import StoreReader, Tail, open_reader
from store.record import ReceivedMessage, Record
from store.recovery import Quarantined


def dump(root: Path, lines: BinaryIO) -> Iterator[str]:
    """Write every record of the store in ``root`` as a line; yield a sentence for every damaged range when it is met.

    Damaged ranges are stepped over. Raises as :func:`store.reading.open_reader`, and OSError when ``lines`` takes no
    more; what was written until then are whole lines.
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
    fields = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "commit_log_offset": message.commit_log_offset,
        "store_timestamp": message.store_timestamp,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "body": b2a_base64(message.body, newline=False).decode("ascii"),
    }
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def _damage(reader: StoreReader, offset: int, step: Quarantined | Tail) -> str:
    path, position = reader.place(offset)
    following = "stepped over" if isinstance(step, Quarantined) else "no record follows"
    return f"{path}, byte {position}: {step.end - step.start} bytes are damaged ({step.reason}): {following}"
