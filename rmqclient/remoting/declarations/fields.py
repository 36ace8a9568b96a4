"""Fields of a header: their notation, their types, and the conversion between a value and its text on the wire.

A declaration such as ``"a=producerGroup! s, i=properties s, batch b"`` has RocketMQ's name of each field. ``a=`` is the
short name used on the wire instead; ``!`` marks a required field; the letter is its type:

======  ==========  ============  ====================================================================================
letter  type        in Python     on the wire
======  ==========  ============  ====================================================================================
s       string      str           as it is
i       int32       int           decimal digits
l       int64       int           decimal digits
b       boolean     bool          ``true`` or ``false``; a reader takes anything but ``true`` (in any case) for false
======  ==========  ============  ====================================================================================

A field that is not a string and has an empty text counts as absent: a binary header cannot tell the two apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rmqclient.remoting.errors import HeaderError


@dataclass(frozen=True, slots=True)
class FieldType:
    """A type of fields. ``write`` converts a value to its text, ``read`` the reverse; both raise ValueError."""

    letter: str
    name: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field: ``name`` is RocketMQ's long name, ``wire_name`` that on the wire."""

    name: str
    wire_name: str
    type: FieldType
    is_required: bool


class Header:
    """The fields of a request or of an answer, in the order of their declaration. ``owner`` names it in errors."""

    def __init__(self, owner: str, declaration: str) -> None:
        self.fields = fields_of(declaration)
        self._owner = owner
        self._writers = {field.name: (field.wire_name, field.type.write) for field in self.fields}
        self._readers = {field.wire_name: (field.name, field.type) for field in self.fields}
        self._types = {field.name: (field.wire_name, field.type) for field in self.fields}
        self._required = {field.name for field in self.fields if field.is_required}
        self._required_wire_names = {field.wire_name for field in self.fields if field.is_required}

    def write(self, values: dict[str, Any], *, is_partial: bool = False) -> dict[str, str]:
        """Return the texts of values by names on the wire. None means an absent field.

        Raises :class:`HeaderError` for an unknown field, a value of a wrong type and, unless ``is_partial``, a missing
        required field.
        """
        texts: dict[str, str] = {}
        writers = self._writers
        name, value = "", None
        try:
            for name, value in values.items():
                if value is not None:
                    wire_name, write = writers[name]
                    texts[wire_name] = write(value)
        except KeyError:
            raise HeaderError(f"{self._owner} has no field {name}: it has {self._names()}") from None
        except ValueError as error:
            raise HeaderError(f"{self._owner}: {name} is {value!r:.80}: {error}") from None
        if not (is_partial or self._required_wire_names <= texts.keys()):
            missing = self._required - {name for name, value in values.items() if value is not None}
            raise HeaderError(f"{self._owner} needs {', '.join(sorted(missing))}")
        return texts

    def read(self, texts: dict[str, str]) -> dict[str, Any]:
        """Return the values of the known fields, by their long names. Absent fields have no entry.

        Raises :class:`HeaderError` for an invalid text, and for a missing required field.
        """
        values: dict[str, Any] = {}
        readers = self._readers
        name, text = "", ""
        try:
            for wire_name, text in texts.items():
                reader = readers.get(wire_name)
                if reader is not None and (text or reader[1] is STRING):
                    name = reader[0]
                    values[name] = reader[1].read(text)
        except ValueError as error:
            raise HeaderError(f"{self._owner}: {name} is {text!r:.80}: {error}") from None
        if not self._required <= values.keys():
            raise HeaderError(
                f"{self._owner} needs {', '.join(sorted(self._required - values.keys()))}: it has {texts}"
            )
        return values

    def read_one(self, texts: dict[str, str], name: str) -> Any:
        """Return the value of the field with this long name, which is required. Raises as :meth:`read`."""
        wire_name, kind = self._types[name]
        text = texts.get(wire_name)
        if text is None or (not text and kind is not STRING):
            raise HeaderError(f"{self._owner} needs {name}: it has {texts}")
        try:
            return kind.read(text)
        except ValueError as error:
            raise HeaderError(f"{self._owner}: {name} is {text!r:.80}: {error}") from None

    def _names(self) -> str:
        return ", ".join(field.name for field in self.fields) or "none"


def fields_of(declaration: str) -> tuple[Field, ...]:
    """Parse a declaration."""
    return tuple(_field_of(part) for part in declaration.split(",") if part.strip())


def _field_of(part: str) -> Field:
    name, letter = part.split()
    wire_name, _, long_name = name.rpartition("=")
    long_name, is_required = long_name.removesuffix("!"), long_name.endswith("!")
    return Field(long_name, wire_name or long_name, TYPES[letter], is_required)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a string is expected")  # noqa: TRY004 - the caller names the field
    return str(value)


def _boolean(value: Any) -> str:
    if not isinstance(value, bool):
        raise ValueError("True or False is expected")  # noqa: TRY004 - the caller names the field
    return "true" if value else "false"


def _read_boolean(text: str) -> bool:
    return text.lower() == "true"


def _whole(letter: str, name: str, bits: int) -> FieldType:
    """Return the type of whole numbers of so many bits, with a sign."""
    numbers = range(-(2 ** (bits - 1)), 2 ** (bits - 1))
    error = f"a whole number from {numbers[0]} to {numbers[-1]} is expected"

    def write(value: Any) -> str:
        if not isinstance(value, int) or isinstance(value, bool) or value not in numbers:
            raise ValueError(error)
        return str(int(value))

    def read(text: str) -> int:
        value = int(text)
        if value not in numbers:
            raise ValueError(error)
        return value

    return FieldType(letter, name, write, read)


STRING: Final = FieldType("s", "string", _string, str)
TYPES: Final = {
    kind.letter: kind
    for kind in (
        STRING,
        _whole("i", "int32", 32),
        _whole("l", "int64", 64),
        FieldType("b", "boolean", _boolean, _read_boolean),
    )
}
