"""What comes back: the value that a handler gets for the bytes of a body, compared with the value that was given.

The type of a value is the annotation that its handler has: an instance of ``Order`` is decoded into ``Order``. Lists,
tuples, sets and dicts have no such type, so each of their elements is looked at. ``list[Order]``, ``dict[date, float]``
or a TypedDict then get equal elements; an annotation that names no type, such as plain ``dict``, gets what JSON holds.

Equal is what ``==`` says, with four exceptions. A list may come back for a tuple, and a tuple for a list. Two times are
equal if they are the same instant, since a zone comes back as an offset. NaN equals NaN. A class without ``==`` is
compared field by field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from typing import Any

import orjson

from rmqclient.codecs.decoding import json_decoder_for

Encode = Callable[[object], bytes]

_DEEPEST = 64
"""Levels of parts whose names are told. What is deeper often has itself among its parts."""


def check_comes_back(value: object, encode: Encode, body: bytes | None = None, path: str = "") -> None:
    """Raise ValueError, which names the part, if a value does not come back equal. ``body`` is its JSON, if known."""
    if isinstance(value, Enum):
        _check_typed(value, encode, body, path)
    elif isinstance(value, (float, Decimal)):
        _check_finite(value, path)
    elif isinstance(value, _AS_THEY_ARE):
        return
    elif isinstance(value, dict):
        _check_keys(value, encode, path)
        _check_each(_parts(value) or {}, encode, path)
    elif isinstance(value, (list, set, frozenset)) or type(value) is tuple:
        _check_each({f"[{place}]": part for place, part in enumerate(value)}, encode, path)
    elif type(value).__module__ == "numpy":
        check_comes_back(value.tolist(), encode, body, path)  # type: ignore[attr-defined] # its arrays and numbers
    else:
        _check_typed(value, encode, body, path)


def part_without_its_class(value: Any, back: Any, path: str = "") -> tuple[str, type, type] | None:
    """Return the first part that came back as its base class, without fields of its own; None if there is none.

    The part is told by its name, such as ``.items[2]``, its class, and the class that came back.
    """
    parts, others = _parts(value) or {}, _parts(back) or {}
    kind, base = type(value), type(back)
    if kind is not base and isinstance(value, base) and not isinstance(value, dict) and parts.keys() - others.keys():
        return path, kind, base
    for name in parts.keys() & others.keys():
        if (found := part_without_its_class(parts[name], others[name], path + name)) is not None:
            return found
    return None


def part_that_fails(value: object, encode: Encode, path: str = "", depth: int = 0) -> str:
    """Return the name of the innermost part for which a value cannot be encoded, as ``.items[2]``; empty if unknown."""
    parts = _parts(value) or {}
    for name, part in parts.items():
        try:
            encode(part)
        except Exception:  # noqa: BLE001 - whatever it is: this part is the one, or has it
            return part_that_fails(part, encode, path + name, depth + 1) if depth < _DEEPEST else ""
    if hasattr(type(value), "__pydantic_validator__"):  # which writes bytes as text
        return next((path + name for name, part in parts.items() if _is_no_text(part)), path)
    return path


def _is_no_text(part: object) -> bool:
    try:
        return isinstance(part, (bytes, bytearray)) and part.decode() is None
    except UnicodeDecodeError:
        return True


def _check_each(parts: dict[str, object], encode: Encode, path: str) -> None:
    for name, part in parts.items():
        if type(part) not in _AS_THEY_ARE:
            check_comes_back(part, encode, None, path + name)


def _check_keys(value: dict[Any, object], encode: Encode, path: str) -> None:
    kinds = {type(key) for key in value} - {str}
    if not kinds:
        return
    if len({type(key) for key in value}) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in {*map(type, value)}))
        raise ValueError(f"{_at(path)} has keys of several types, {names}, which are all texts in JSON")
    (kind,) = kinds
    keys = encode(dict.fromkeys(value, 0))
    if len(orjson.loads(keys)) < len(value):
        raise ValueError(f"two keys of {_at(path)} are the same text in JSON")
    if issubclass(kind, str) and not issubclass(kind, Enum):
        return
    if (decode := _decoder(dict[kind, int])) is None:  # type: ignore[valid-type]
        raise ValueError(f"{_at(path)} has keys of type {kind.__qualname__}, and no text of JSON becomes one")
    _check_equal(dict.fromkeys(value, 0), decode, keys, path)


def _check_typed(value: object, encode: Encode, body: bytes | None, path: str) -> None:
    kind: Any = type(value)
    decode, parts = _decoder(kind), _parts(value)
    if decode is None:  # no handler can ask for this type: one may ask for what is inside
        _check_each(parts or {}, encode, path)
        return
    try:
        _check_equal(value, decode, encode(value) if body is None else body, path)
    except ValueError:
        for name, part in (parts or {}).items():  # the error of the part says more
            if isinstance(part, (float, Decimal)):
                check_comes_back(part, encode, None, path + name)
        if not getattr(type(value), "__parameters__", ()):
            raise
        _check_each(parts or {}, encode, path)  # of Box[T], the annotation may be Box[date]


def _check_equal(value: object, decode: Callable[[bytes], object], body: bytes, path: str) -> None:
    try:
        back = decode(body)
    except Exception as error:
        raise ValueError(
            f"{_at(path)} is stored as {_short(body)}, which does not fit {type(value).__qualname__}: {error}"
        ) from error
    found = _difference(value, back, path)
    if found is not None:
        where, given, got = found
        raise ValueError(f"{_at(where)} is {_short(given)} and would come back as {_short(got)}")
    if b"Infinity" in body or b"NaN" in body:  # as text, which one decoder takes for a Decimal and another refuses
        _check_finite(value, path)


def _check_finite(value: object, path: str) -> None:
    """Raise ValueError, which names it, for a part that is no finite number."""
    if isinstance(value, (float, Decimal)) and not isfinite(value):
        raise ValueError(f"{_at(path)} is {value!r}, and JSON has neither NaN nor infinity")
    for name, part in (_parts(value) or {}).items():
        _check_finite(part, path + name)


def _difference(value: Any, back: Any, path: str) -> tuple[str, object, object] | None:
    """Return the place of the first part that differs, with both of its values; None if there is none."""
    if _is_equal(value, back):
        return None
    parts, others = _parts(value), _parts(back)
    is_sequence = isinstance(value, (list, tuple)) and isinstance(back, (list, tuple))
    if parts is None or others is None or parts.keys() != others.keys():
        return path, value, back
    if type(value) is not type(back) and not is_sequence and not isinstance(value, dict):
        return path, value, back
    for name, part in parts.items():
        if (found := _difference(part, others[name], path + name)) is not None:
            return found
    return None


def _is_equal(value: Any, back: Any) -> bool:
    try:
        if value == back:
            return True
        if isinstance(value, datetime) and isinstance(back, datetime) and value.tzinfo and back.tzinfo:
            return value.astimezone(UTC) == back.astimezone(UTC)
        return bool(value != value and back != back)  # noqa: PLR0124 - NaN, of float or Decimal
    except Exception:  # noqa: BLE001 - an array, for instance, compares to an array
        return False


def _parts(value: Any) -> dict[str, object] | None:
    """Return the parts of a value by what stands behind its name, as in ``.items`` or ``[2]``; None if it has none."""
    if isinstance(value, dict):
        return {f"[{key!r}]": part for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return {f"[{place}]": part for place, part in enumerate(value)}
    if dataclasses.is_dataclass(value):
        return {f".{field.name}": getattr(value, field.name, None) for field in dataclasses.fields(value)}
    if (names := getattr(type(value), "__struct_fields__", None)) is not None:
        return {f".{name}": getattr(value, name) for name in names}
    if hasattr(type(value), "__pydantic_validator__"):
        inner = vars(value) | (value.__pydantic_extra__ or {}) | (value.__pydantic_private__ or {})
        return {f".{name}": part for name, part in inner.items()}
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return _parts(value.tolist())
    return None


@lru_cache(maxsize=512)
def _decoder(kind: Any) -> Callable[[bytes], object] | None:
    try:
        return json_decoder_for(kind)
    except Exception:  # noqa: BLE001 - whatever the reason is: no body can be decoded into it
        return None


def _at(path: str) -> str:
    return path or "it"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_AS_THEY_ARE = (str, int, type(None))
"""What orjson writes as it is, or refuses."""
