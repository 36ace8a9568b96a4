"""Document: one JSON file that RocketMQ reads too, read and replaced so that a crash leaves a whole one.

**Writing.** The new text goes to ``<file>.tmp`` and to the disk, the old text to ``<file>.bak``. Then one rename puts
the new text in place, and the directory is flushed. There is always a whole file under the name; RocketMQ
(``MixAll.string2File``) deletes before it renames and flushes nothing. An old text that does not parse does not replace
the ``.bak``, which may be the only good one. Writers hold ``TOPIC_BYTE`` of
:mod:`rmqclient.store.files.file_lock`.

**Reading.** The document is read from ``<file>``, or from ``<file>.bak`` if that is missing, empty or damaged. If both
are missing or empty, nothing was configured (``ConfigManager.load``). A damaged file without a good ``.bak`` is
:class:`StoreCorrupt`: RocketMQ would start with an empty configuration and then save that.

**The dialect.** RocketMQ 4.9 pretty-prints with tabs and ``"key":value``, and writes maps with integer keys unquoted,
``{0:5,1:7}``, which is not JSON. This module reads that, and writes JSON with quoted integer keys, which a broker also
reads. The other oddity, maps whose keys are objects, is only in the ``offsets.json`` of broadcast consumers and is
refused.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import StoreCorrupt, store_errors
from rmqclient.store.files.file_system import check_plain
from rmqclient.store.files.mapped_file import make_directory, scratch_name, sync_directory
from rmqclient.store.files.sharing import OWN_FILE, share_file
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_MOST_BYTES = 256 << 20
"""Of a settings file or of what the timer has done, which are some MiB in the largest stores."""
_LARGEST_INT = 2**31 - 1
_DEEPEST = 32
"""Levels of nesting; the unknown parts of a document are written level by level."""


def read(path: Path) -> dict[str, Any] | None:
    """Return the object that ``path`` holds, or its ``.bak``; ``None`` if both are missing or empty.

    Raises:
        StoreCorrupt: at least one of them is damaged, and neither can be read.
        StoreUnusable: one of them is not a regular file, or may not be read.
    """
    damage: StoreCorrupt | None = None
    for candidate in (path, _beside(path, ".bak")):
        text = content(candidate)
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


def write(path: Path, text: bytes, temporary: CrashPoint | None = None) -> None:
    """Replace ``path`` by ``text`` so that a crash leaves the old or the new one; keep the old text as ``.bak``.

    Makes the directory, mode 0700, if it is missing. ``temporary`` is reached when the text has no name yet.

    Raises:
        StoreFull: no room; ``path`` is untouched.
    """
    with store_errors(f"{path} cannot be written"):
        if not path.parent.is_dir():
            make_directory(path.parent)
            sync_directory(path.parent.parent)
    old = content(path)
    if old.strip() and _parses(old, path):
        _write_and_rename(_beside(_beside(path, ".bak"), ".tmp"), _beside(path, ".bak"), old)
    _write_and_rename(_beside(path, ".tmp"), path, text, temporary)
    _sync_name(path)


def replace_file(path: Path, text: bytes, temporary: CrashPoint | None = None) -> None:
    """Replace ``path`` by ``text`` so that a crash leaves the old or the new text; no ``.bak``, any content.

    Any number of writers may replace it at once; the last one wins. ``path`` stands in the root of the store, where
    :func:`rmqclient.store.files.mapped_file.remove_scratch` removes what a killed writer leaves.

    Raises:
        StoreFull: no room; ``path`` is untouched.
    """
    _write_and_rename(scratch_name(path.parent), path, text, temporary)
    _sync_name(path)


def _sync_name(path: Path) -> None:
    with store_errors(f"{path} is replaced, and its name may be lost at a power cut"):
        sync_directory(path.parent)


def parse(text: bytes, path: Path) -> dict[str, Any]:
    """Return the object that ``text`` holds, with integer keys as strings; ``path`` is only for messages.

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
      (?P<string> " [^"\\]* (?: \\. [^"\\]* )* (?: " | \\?\Z ) )  # whole, even unterminated: never searched
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


def table(path: Path, document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the object under ``name``, an empty one without it. Raises StoreCorrupt for any other value."""
    return fields(path, name, document.get(name, {}))


def fields(path: Path, name: str, value: object) -> dict[str, Any]:
    """Return ``value``, which must be an object; ``path`` and ``name`` are for messages. Raises StoreCorrupt."""
    if not isinstance(value, dict):
        raise StoreCorrupt(path, 0, f"{name} is {value!r:.40}, not an object")
    return value


def is_count(value: object) -> bool:
    """Tell whether a value is an integer that Java keeps in 32 bits and not negative; true and false are not."""
    return type(value) is int and 0 <= value <= _LARGEST_INT


# --- bytes and files ------------------------------------------------------------------------------


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def content(path: Path, missing: bytes = b"") -> bytes:
    """Return the bytes of a plain file, ``missing`` without one. Raises StoreUnusable, DiskFailed, StoreCorrupt."""
    # Not blocking, because the file may be a pipe.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with store_errors(f"{path} cannot be read"):
        try:
            with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
                status = os.fstat(file.fileno())
                check_plain(path, status)
                if status.st_size > _MOST_BYTES:  # it may be all holes
                    raise StoreCorrupt(
                        path, _MOST_BYTES, f"the file has {status.st_size} bytes: no such file is as long"
                    )
                return file.read()
        except FileNotFoundError:
            return missing


def _write_and_rename(scratch: Path, path: Path, text: bytes, temporary: CrashPoint | None = None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with store_errors(f"{path} cannot be written"):
        try:
            scratch.unlink(missing_ok=True)  # never written through: it may be a link to another file
            with open(scratch, "wb", opener=lambda name, _: os.open(name, flags, OWN_FILE)) as file:
                share_file(file.fileno(), path.parent)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if temporary is not None:
                reach(temporary)
            scratch.rename(path)
        except OSError:
            with contextlib.suppress(OSError):  # the next write overwrites it
                scratch.unlink(missing_ok=True)
            raise
