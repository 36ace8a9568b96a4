"""Tree of an SQL92 expression, between the grammar and the compiler.

Evaluated for a message, a node gives a value or null. The Java type of the value is known beforehand.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias


class Kind(enum.Enum):
    """The Java type of a value, known before any message is. It decides how two values are compared."""

    NULL = "null"
    BOOLEAN = "Boolean"
    STRING = "String"
    INTEGER = "Integer"
    LONG = "Long"
    DOUBLE = "Double"


NUMBERS = frozenset((Kind.INTEGER, Kind.LONG, Kind.DOUBLE))


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    kind: Kind
    value: bool | str | int | float | None


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a property; null if the message does not have it."""

    name: str


@dataclass(frozen=True, slots=True)
class Present:
    """A property used as a truth value: null if it is missing, false if it is there, whatever its text."""

    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    """The negative of a number; null for anything else."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a truth value."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """AND of two or more operands."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """OR of two or more operands."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    """Equality. The right operand is NULL for IS NULL."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Ordered:
    """An order of two numbers."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class In:
    """Whether the value of a property is in a list of strings."""

    name: str
    strings: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class Text:
    """Whether a string contains, begins with or ends with another one."""

    operator: str
    operand: Node
    string: str
    negated: bool


Node: TypeAlias = Literal | Property | Present | Negative | Not | And | Or | Equal | Ordered | In | Text

TRUTHS = (Present, Not, And, Or, Equal, Ordered, In, Text)


def kind_of(node: Node) -> Kind:
    """Return the type of the values that a node gives besides null; NULL if it always gives null."""
    match node:
        case Literal(kind):
            return kind
        case Property():
            return Kind.STRING
        case Negative(operand):
            kind = kind_of(operand)
            return kind if kind in NUMBERS else Kind.NULL
    return Kind.BOOLEAN


def depth_of(node: Node) -> int:
    """Return how many levels a tree has."""
    return sum(1 for _ in _levels(node))


def names_of(node: Node) -> frozenset[str]:
    """Return the names of the properties that a tree reads."""
    return frozenset(
        each.name for level in _levels(node) for each in level if isinstance(each, Property | Present | In)
    )


def _levels(node: Node) -> Iterator[list[Node]]:
    """Yield the nodes of each level, without recursion: a tree may be deeper than Python's limit."""
    level = [node]
    while level:
        yield level
        level = [child for each in level for child in _children(each)]


def _children(node: Node) -> tuple[Node, ...]:
    match node:
        case And(operands) | Or(operands):
            return operands
        case Equal(left, right) | Ordered(_, left, right):
            return (left, right)
        case Not(operand) | Negative(operand) | Text(_, operand):
            return (operand,)
    return ()
