"""JSON of fastjson, which RocketMQ uses for bodies. It differs from JSON in three cases.

=====================  =====================================================  =======================================
case                   fastjson writes                                        :func:`read` returns
=====================  =====================================================  =======================================
a number as a key      ``{0:"10.0.0.1:10911"}``                               the key ``"0"``
an object as a key     ``{{"brokerName":"b","queueId":0,"topic":"T"}:5}``     the key as a text: the object in JSON
an object seen twice   ``{"$ref":"$.brokerDatas[0]"}``                        the object again
=====================  =====================================================  =======================================

Java also reads strict JSON, in which such a key is a string with the object. :func:`write` returns strict JSON, or
fastjson's form where a reader needs it (the Go client, in the body of request 220). It never writes a reference.
"""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # the stubs leave it out

from rmqclient.remoting.errors import BodyError
from rmqclient.store import MessageQueue

MOST_DEPTH = 64
"""Levels of nested objects and arrays, at most; RocketMQ's bodies have less than ten."""

_BLANKS = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {"null": None, "true": True, "false": False}
_WORD = re.compile(r"null|true|false")
_BARE_KEY = re.compile(r"[A-Za-z0-9_$.-]+")
_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)+)|\[([0-9]+)\]|\[(?:'([^']*)'|\"([^\"]*)\")\]")


def read(body: bytes) -> object:
    """Return the value of a body: dicts with text keys, lists, texts, numbers, booleans, None.

    Raises BodyError for a body that is neither JSON nor fastjson's form of it, or is nested too deep.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"a body is not UTF-8: byte {error.start} of {len(body)}") from error
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        value = _Reader(text).whole()
    return _Resolver(value).resolved() if '"$ref"' in text else value


def read_list(body: bytes, name: str) -> list[object]:
    """Return a body that is an array, or the array ``name`` of a body that is an object. Raises BodyError."""
    value = read(body)
    found = value.get(name) if isinstance(value, dict) else value
    if not isinstance(found, list):
        raise BodyError(f"an array {name} is expected, not {found!r:.80}")
    return found


def write(value: object, *, as_fastjson: bool = False) -> bytes:
    """Return the body of a value, without blanks. Keys may be strings, integers and message queues.

    ``as_fastjson``: keys that are numbers or message queues have no quotes, which is not strict JSON.
    """
    parts: list[str] = []
    _write(value, parts, as_fastjson)
    return "".join(parts).encode()


def _write(value: object, parts: list[str], as_fastjson: bool) -> None:
    if isinstance(value, MessageQueue):
        value = queue_json(value)
    if isinstance(value, dict):
        before = "{"
        for key, item in value.items():
            parts += (before, _key(key, as_fastjson), ":")
            _write(item, parts, as_fastjson)
            before = ","
        parts.append("}" if value else "{}")
    elif isinstance(value, list | tuple):
        before = "["
        for item in value:
            parts.append(before)
            _write(item, parts, as_fastjson)
            before = ","
        parts.append("]" if value else "[]")
    else:
        parts.append(_text(value))


def _key(key: object, as_fastjson: bool) -> str:
    if isinstance(key, str):
        return _text(key)
    bare = _text(queue_json(key) if isinstance(key, MessageQueue) else key)
    return bare if as_fastjson else _text(bare)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def queue_json(queue: MessageQueue) -> dict[str, object]:
    """Return the object for a message queue, with its fields in fastjson's order."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


class _Reader:
    """Reads one value, with numbers and objects as keys."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> object:
        value = self._value(0)
        if self._next():
            raise self._broken("something follows the value")
        return value

    def _value(self, depth: int) -> object:
        first = self._next()
        if first in ("{", "[") and depth >= MOST_DEPTH:
            raise self._broken(f"it is nested deeper than {MOST_DEPTH}, or inside a key")
        if first == "{":
            return self._object(depth + 1)
        if first == "[":
            return self._array(depth + 1)
        return self._string() if first == '"' else self._scalar()

    def _object(self, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        self._at += 1
        while self._next() != "}":
            key = self._key(depth)
            self._expect(":")
            found[key] = self._value(depth)
            if self._next() != "}":
                self._expect(",")
        self._at += 1
        return found

    def _array(self, depth: int) -> list[object]:
        found: list[object] = []
        self._at += 1
        while self._next() != "]":
            found.append(self._value(depth))
            if self._next() != "]":
                self._expect(",")
        self._at += 1
        return found

    def _key(self, depth: int) -> str:
        first = self._next()
        if first == '"':
            return self._string()
        if first == "{" and depth <= MOST_DEPTH:
            return _text(self._object(MOST_DEPTH + 1))  # flat: nested strings would double in size at each level
        bare = _BARE_KEY.match(self._text, self._at)
        if bare is None:
            raise self._broken("a key is expected")
        self._at = bare.end()
        return bare[0]

    def _string(self) -> str:
        try:
            found, self._at = scanstring(self._text, self._at + 1, False)
        except ValueError as error:
            raise self._broken(str(error)) from None
        return str(found)

    def _scalar(self) -> object:
        if word := _WORD.match(self._text, self._at):
            self._at = word.end()
            return _WORDS[word[0]]
        number = _NUMBER.match(self._text, self._at)
        if number is None or number.end() - self._at > 400:
            raise self._broken("a value is expected")
        self._at = number.end()
        return int(number[0]) if number[0].lstrip("-").isdecimal() else float(number[0])

    def _next(self) -> str:
        """Skip blanks; return the next character, an empty string at the end."""
        self._at = _BLANKS.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches anywhere
        return self._text[self._at : self._at + 1]

    def _expect(self, character: str) -> None:
        if self._next() != character:
            raise self._broken(f"{character!r} is expected")
        self._at += 1

    def _broken(self, what: str) -> BodyError:
        found = self._text[self._at : self._at + 20]
        return BodyError(f"a body is not JSON: {what} at character {self._at}, where {found!r} stands")


class _Resolver:
    """Replaces references by their objects."""

    def __init__(self, root: object) -> None:
        self._root = root

    def resolved(self) -> object:
        return self._resolved(self._root, [])

    def _resolved(self, value: object, above: list[object]) -> object:
        if len(above) > MOST_DEPTH:
            raise BodyError(f"a body is nested deeper than {MOST_DEPTH}")
        if isinstance(value, dict):
            if set(value) == {"$ref"}:
                return self._target(str(value["$ref"]), above)
            above.append(value)
            for key, item in value.items():
                value[key] = self._resolved(item, above)
            above.pop()
        elif isinstance(value, list):
            above.append(value)
            value[:] = [self._resolved(item, above) for item in value]
            above.pop()
        return value

    def _target(self, path: str, above: list[object]) -> object:
        if path == "@":
            return above[-1]
        if path and set(path) <= {".", "/"}:  # "..", "../..": the parent, its parent
            return above[-min(path.count("..") + 1, len(above))]
        target, at = self._root, 1
        if not path.startswith("$"):
            raise _unknown(path)
        while at < len(path):
            step = _STEP.match(path, at)
            if step is None:
                raise _unknown(path)
            target, at = _member(target, step, path), step.end()
        return target


def _member(value: object, step: re.Match[str], path: str) -> object:
    name, number, *quoted = step.groups()
    if number is not None and isinstance(value, list) and int(number) < len(value):
        return value[int(number)]
    name = next((text for text in quoted if text is not None), name)
    if name is not None and isinstance(value, dict):
        for known in (name, re.sub(r"\\(.)", r"\1", name)):
            if known in value:
                return value[known]
    raise _unknown(path)


def _unknown(path: str) -> BodyError:
    return BodyError(f"a body refers to {path[:80]!r}, which is not in it")
