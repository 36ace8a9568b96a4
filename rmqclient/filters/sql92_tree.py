"""Tree of an SQL92 expression, between the grammar and the compiler.

A node gives a value for a message, or null. Its Java type is known beforehand.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias


class Kind(enum.Enum):
    """Java's type of a value, which is known before any message is: it decides how two values are compared."""

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
    """The value of a property, null when the message has none of the name."""

    name: str


@dataclass(frozen=True, slots=True)
class Present:
    """A property where a truth value is asked for: null without it, and false with it, whatever it says."""

    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    """The negative of a number, null for anything else."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a truth value."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """AND, of two or more."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """OR, of two or more."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    """Equality. Right of it may be NULL, for IS NULL."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Ordered:
    """An order between two numbers."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class In:
    """Whether a property is one of some strings."""

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
    """Return the type of what a node gives, unless it gives null; NULL for what always gives null."""
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
    """Return the properties that a tree asks for."""
    return frozenset(
        each.name for level in _levels(node) for each in level if isinstance(each, Property | Present | In)
    )


def _levels(node: Node) -> Iterator[list[Node]]:
    """Yield the nodes of each level; not by recursion, because a tree may be deeper than Python's limit."""
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
