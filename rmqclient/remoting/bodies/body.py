"""Body: the base of all bodies. A class declares its fields; reading and writing follow from their types.

The name of a field on the wire is that of its attribute in camel case, unless ``Annotated`` gives another one. Fields
are written in the order of their names, without those that are None, as fastjson does. Reading accepts the deviations
of RocketMQ's clients:

========================  =======================================================================================
type of the field         accepted values
========================  =======================================================================================
``int``                   a whole number, or a text with its digits (the C++ client)
``bool``                  true, false, or these words or 0 and 1 in a text
``str``                   a text, or a number as its text
an enumeration            its name, or its position in the declaration (the C++ client)
``tuple[X, ...]``         an array; a missing one and null are empty
``dict[X, Y]``            an object; ``X`` is ``str``, ``int`` or ``MessageQueue``
``MessageQueue``          an object of brokerName, queueId and topic
a subclass of ``Body``    an object
``object``                any value of :func:`~rmqclient.remoting.bodies.fastjson.read`
========================  =======================================================================================

A field that is absent or null has its default. Unknown fields are ignored.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Self

from rmqclient.remoting.bodies import fastjson
from rmqclient.remoting.errors import BodyError
from rmqclient.store import MessageQueue


class Body:
    """A body, or an object inside of one."""

    __slots__ = ()

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a body. Raises BodyError if it is not JSON, or a field is missing or of another type."""
        return cls.of(fastjson.read(body))

    @classmethod
    def of(cls, value: object) -> Self:
        """Convert a value of :func:`~rmqclient.remoting.bodies.fastjson.read`. Raises BodyError."""
        if not isinstance(value, dict):
            raise BodyError(f"{cls.__name__} is an object, not {_shown(value)}")
        found = {}
        for field in _fields_of(cls):
            item = value.get(field.wire)
            if item is not None:
                try:
                    found[field.name] = field.read(item)
                except BodyError as error:
                    raise BodyError(f"{field.wire}: {error}") from None
            elif field.required:
                raise BodyError(f"{cls.__name__} lacks its field {field.wire}")
        return cls(**found)

    def encode(self, *, as_fastjson: bool = False) -> bytes:
        """Return the body, in strict JSON, or with fastjson's keys without quotes."""
        return fastjson.write(self.to_json(), as_fastjson=as_fastjson)

    def to_json(self) -> dict[str, object]:
        """Return the value for :func:`~rmqclient.remoting.bodies.fastjson.write`."""
        pairs = [(field, getattr(self, field.name)) for field in _fields_of(type(self))]
        return {field.wire: field.write(value) for field, value in pairs if value is not None}


class _Codec(NamedTuple):
    read: Callable[[Any], Any]
    write: Callable[[Any], object]


class _Field(NamedTuple):
    wire: str
    name: str
    required: bool
    read: Callable[[Any], Any]
    write: Callable[[Any], object]


_FIELDS: dict[type[Body], tuple[_Field, ...]] = {}


def _fields_of(cls: type[Body]) -> tuple[_Field, ...]:
    """Return the fields of a class, in the order of their names on the wire."""
    if cls not in _FIELDS:
        _FIELDS[cls] = _declared_fields(cls)
    return _FIELDS[cls]


def _declared_fields(cls: Any) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for field in dataclasses.fields(cls):
        hint, wire = hints[field.name], camel_case(field.name)
        if typing.get_origin(hint) is Annotated:
            hint, wire = typing.get_args(hint)
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        found.append(_Field(wire, field.name, required, *_codec(hint)))
    return tuple(sorted(found))


def camel_case(name: str) -> str:
    """Return an attribute's name in camel case: ``queue_id`` is ``queueId``."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _codec(hint: Any) -> _Codec:
    """Return the reader and writer of a type's values."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):  # X | None
        return _codec(arguments[0])
    if origin is tuple:
        return _array(_codec(arguments[0]))
    if origin is dict:
        return _map(_KEYS[arguments[0]], _codec(arguments[1]))
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if issubclass(hint, enum.Enum):
        return _Codec(functools.partial(_member, hint), lambda member: member.name)
    return _Codec(hint.of, lambda body: body.to_json())


def _array(item: _Codec) -> _Codec:
    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise BodyError(f"an array is expected, not {_shown(value)}")
        return tuple(item.read(element) for element in value)

    return _Codec(read, lambda values: [item.write(value) for value in values])


def _map(key: Callable[[str], Any], item: _Codec) -> _Codec:
    def read(value: object) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise BodyError(f"an object is expected, not {_shown(value)}")
        return {key(name): item.read(element) for name, element in value.items() if element is not None}

    return _Codec(read, lambda values: {name: item.write(value) for name, value in values.items()})


def _int(value: object) -> int:
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) <= 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        raise BodyError(f"a whole number of 64 bits is expected, not {_shown(value)}")
    return value


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BodyError(f"a number is expected, not {_shown(value)}")
    return float(value)


def _bool(value: object) -> bool:
    known = {"true": True, "false": False, "1": True, "0": False}.get(str(value).lower())
    if known is None:
        raise BodyError(f"true or false is expected, not {_shown(value)}")
    return known


def _str(value: object) -> str:
    if isinstance(value, dict | list):
        raise BodyError(f"a text is expected, not {_shown(value)}")
    return value if isinstance(value, str) else json.dumps(value)


def _member(kind: type[enum.Enum], value: object) -> enum.Enum:
    members = list(kind)
    for number, member in enumerate(members):
        if value in (member.name, number) and not isinstance(value, bool):
            return member
    raise BodyError(f"one of {', '.join(member.name for member in members)} is expected, not {_shown(value)}")


def _queue(value: object) -> MessageQueue:
    if not isinstance(value, dict) or value.get("topic") is None:
        raise BodyError(f"a message queue is an object of topic, brokerName and queueId, not {_shown(value)}")
    return MessageQueue(_str(value["topic"]), _int(value.get("queueId", 0)), _str(value.get("brokerName") or ""))


def _queue_key(text: str) -> MessageQueue:
    try:
        return _queue(json.loads(text))
    except (ValueError, RecursionError):
        raise BodyError(f"a message queue is expected as a key, not {text[:80]!r}") from None


def _shown(value: object) -> str:
    return repr(value)[:80]


_KEYS: dict[Any, Callable[[str], Any]] = {str: _str, int: _int, MessageQueue: _queue_key}

_SIMPLE: dict[Any, _Codec] = {
    int: _Codec(_int, lambda value: value),
    float: _Codec(_float, lambda value: value),
    bool: _Codec(_bool, lambda value: value),
    str: _Codec(_str, lambda value: value),
    object: _Codec(lambda value: value, lambda value: value),
    MessageQueue: _Codec(_queue, fastjson.queue_json),
}
