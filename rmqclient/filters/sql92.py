"""SQL92 filter: ``region = 'eu' AND amount > 100`` over the properties of a message, compiled once into closures.

The syntax is described in :mod:`rmqclient.filters.sql92_grammar`. The meaning is that of RocketMQ's broker:

* Properties are strings. A missing property is null, and null is neither true nor false. A message matches if the whole
  expression is true.
* A property compared with an integer is parsed as an integer of 32 or 64 bits, the size of the literal; compared with a
  float, as a double. If it cannot be parsed ("3.0", "5 ", "abc" as an integer), the comparison fails, and **the message
  does not match**, whatever the rest says: ``a = 3 OR b = 'x'`` does not match a message with ``a`` of "abc".
* Two properties are compared for equality as strings, and for order as doubles.
* Compared with TRUE or FALSE, a property on the left is true if it says "true" in any case of letters, and false
  otherwise. A property on the right makes the comparison fail: ``TRUE = a``.
* ``a <> 3``, ``NOT (a = 3)``, ``a NOT IN ('3')`` and ``a NOT BETWEEN 1 AND 3`` do not match a message without ``a``;
  nor does ``a NOT CONTAINS 'x'``, nor anything that searches for the empty string.

A property of more than 1,000 characters does not count as a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rmqclient.filters.sql92_grammar import parse
from rmqclient.filters.sql92_tree import (
    NUMBERS,
    And,
    Equal,
    In,
    Kind,
    Literal,
    Negative,
    Node,
    Not,
    Or,
    Ordered,
    Present,
    Property,
    Text,
    kind_of,
    names_of,
)

MAX_NUMBER_CHARACTERS = 1_000

Properties: TypeAlias = Mapping[str, str]
Evaluate: TypeAlias = Callable[[Properties], Any]


@dataclass(frozen=True, slots=True)
class Sql92:
    """A compiled expression; equal to one of the same text. Raises FilterError for one that cannot be compiled."""

    expression: str
    names: tuple[bytes, ...] = field(init=False, repr=False, compare=False)
    """Names of the properties that the expression reads, sorted; no others matter."""
    _evaluate: Evaluate = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tree = parse(self.expression)
        object.__setattr__(self, "names", tuple(sorted(name.encode() for name in names_of(tree))))
        object.__setattr__(self, "_evaluate", _compiled(tree))

    def matches(self, properties: Properties) -> bool:
        """Return whether a message with these properties matches."""
        try:
            return self._evaluate(properties) is True
        except _CannotCompareError:
            return False

    def __reduce__(self) -> tuple[type[Sql92], tuple[str]]:
        return type(self), (self.expression,)


class _CannotCompareError(ValueError):
    """An exception in RocketMQ; the message does not match."""


# --- from the tree to closures --------------------------------------------------------------------


def _compiled(node: Node) -> Evaluate:
    match node:
        case Literal(_, value):
            return lambda _: value
        case Property(name):
            return lambda properties: properties.get(name)
        case Present(name):
            return lambda properties: False if name in properties else None
        case In(name, strings, negated):
            return _in(name, strings, negated)
        case Negative(operand):
            return _negative(operand)
        case Not(operand):
            return _not(_compiled(operand))
        case And(operands):
            return _joined([_compiled(each) for each in operands], decisive=False)
        case Or(operands):
            return _joined([_compiled(each) for each in operands], decisive=True)
        case Text():
            return _text(node)
        case Equal(left, right):
            return _equal(left, right)
        case Ordered():
            return _ordered(node)


def _in(name: str, strings: frozenset[str], negated: bool) -> Evaluate:
    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in strings) is not negated

    return evaluate


def _negative(operand: Node) -> Evaluate:
    if kind_of(operand) not in NUMBERS:
        return lambda _: None
    value = -_compiled(operand)({})  # only literals are numbers
    return lambda _: value


def _not(operand: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> bool | None:
        value = operand(properties)
        return None if value is None else not value

    return evaluate


def _joined(operands: list[Evaluate], *, decisive: bool) -> Evaluate:
    """OR, which a true operand decides, or AND, which a false one does."""

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = not decisive
        for operand in operands:
            value: object = operand(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return evaluate


def _text(node: Text) -> Evaluate:
    """As ContainsExpression: the empty string is never found, and without a look at the operand, which could raise."""
    if node.string == "":
        return lambda _: False
    string, negated, operand = node.string, node.negated, _compiled(node.operand)
    if kind_of(node.operand) is not Kind.STRING:
        return _evaluated_and_false(operand)
    found: Callable[[str], bool] = {
        "CONTAINS": lambda value: string in value,
        "STARTSWITH": lambda value: value.startswith(string),
        "ENDSWITH": lambda value: value.endswith(string),
    }[node.operator]

    def evaluate(properties: Properties) -> bool:
        value = operand(properties)
        return value is not None and found(value) is not negated

    return evaluate


def _evaluated_and_false(operand: Evaluate) -> Evaluate:
    """Return false, unless the operand raises: then the whole expression does not match."""

    def evaluate(properties: Properties) -> bool:
        operand(properties)
        return False

    return evaluate


def _equal(left: Node, right: Node) -> Evaluate:
    """Null = value is null, value = null is false, null = null is true: as ComparisonExpression.doCreateEqual."""
    if isinstance(left, Property) and isinstance(right, Literal) and right.kind is Kind.STRING:
        return _equal_string(left.name, right.value)
    compare = _comparison(kind_of(left), kind_of(right))
    of_left, of_right = _compiled(left), _compiled(right)

    def evaluate(properties: Properties) -> bool | None:
        value, other = of_left(properties), of_right(properties)
        if value is None:
            return True if other is None else None
        return other is not None and compare(value, other) == 0

    return evaluate


def _equal_string(name: str, string: object) -> Evaluate:
    """The most frequent comparison, without the general function."""

    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else value == string

    return evaluate


def _ordered(node: Ordered) -> Evaluate:
    kinds = (kind_of(node.left), kind_of(node.right))
    compare = _compare_as_doubles if kinds == (Kind.STRING, Kind.STRING) else _comparison(*kinds)
    of_left, of_right = _compiled(node.left), _compiled(node.right)
    wanted = {">": (1,), ">=": (0, 1), "<": (-1,), "<=": (-1, 0)}[node.operator]

    def evaluate(properties: Properties) -> bool | None:
        value, other = of_left(properties), of_right(properties)
        if value is None or other is None:
            return None
        return compare(value, other) in wanted

    return evaluate


# --- comparing, with Java's types -----------------------------------------------------------------

Compare: TypeAlias = Callable[[Any, Any], int]
"""Returns -1, 0 or 1, as compareTo; raises _CannotCompareError."""


def _comparison(left: Kind, right: Kind) -> Compare:
    """Return the comparison of two types, strings converted, as in ComparisonExpression.__compare."""
    if left is Kind.STRING and right in _PARSE:
        parse_left = _PARSE[right]
        compare = _compare_doubles if right is Kind.DOUBLE else _compare
        return lambda value, other: compare(parse_left(value), other)
    if right is Kind.STRING and left in NUMBERS:
        parse_right = _PARSE[left]
        compare = _compare_doubles if left is Kind.DOUBLE else _compare
        return lambda value, other: compare(value, parse_right(other))
    if left is Kind.BOOLEAN and right is Kind.STRING:
        return _cannot_compare
    if left is Kind.DOUBLE or (right is Kind.DOUBLE and left in NUMBERS):
        return lambda value, other: _compare_doubles(float(value), float(other)) if right in NUMBERS else -1
    if left is right or {left, right} <= NUMBERS:
        return _compare
    return lambda _value, _other: -1  # a truth value and a number are just unequal


def _compare(value: Any, other: Any) -> int:
    return bool(value > other) - bool(value < other)


def _compare_doubles(value: float, other: float) -> int:
    """Double.compareTo: NaN equals itself and is greatest, and 0.0 is above -0.0."""
    if value < other:
        return -1
    if value > other:
        return 1
    return _compare(_place(value), _place(other))


def _place(value: float) -> float:
    return 2.0 if math.isnan(value) else math.copysign(1.0, value) * (value == 0)


def _compare_as_doubles(value: str, other: str) -> int:
    return _compare_doubles(_double(value), _double(other))


def _cannot_compare(value: bool, other: str) -> int:
    raise _CannotCompareError(f"{value} and {other!r}: a ClassCastException in RocketMQ")


_INTEGER = re.compile(r"[+-]?\d++")
_DOUBLE = re.compile(
    r"""[+-]?+ (?: NaN | Infinity
      | (?P<decimal> (?: [0-9]++ (?: \.[0-9]*+ )? | \.[0-9]++ ) (?: [eE] [+-]?+ [0-9]++ )? ) [fFdD]?
      | (?P<hexadecimal> 0[xX] (?: [0-9a-fA-F]++ (?: \.[0-9a-fA-F]*+ )? | \.[0-9a-fA-F]++ ) [pP] [+-]?+ [0-9]++ )
        [fFdD]? )""",
    re.VERBOSE,
)
_TRIMMED = "".join(map(chr, range(0x21)))


def _integer(text: str, bits: int) -> int:
    """Integer.valueOf and Long.valueOf: an optional sign and digits of any script, without blanks."""
    if text.isdecimal() and len(text) < 10:  # most texts; nine digits always fit
        return int(text)
    if len(text) <= MAX_NUMBER_CHARACTERS and _INTEGER.fullmatch(text):
        value = int(text)
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            return value
    raise _CannotCompareError(f"{text!r} is not an integer of {bits} bits")


def _double(text: str) -> float:
    """Double.valueOf: allows surrounding blanks, a suffix, NaN, Infinity and hexadecimal floats."""
    text = text.strip(_TRIMMED)
    found = _DOUBLE.fullmatch(text) if len(text) <= MAX_NUMBER_CHARACTERS else None
    if found is None:
        raise _CannotCompareError(f"{text!r} is not a double")
    sign = -1.0 if text[0] == "-" else 1.0
    if found["decimal"]:
        return sign * float(found["decimal"])
    if found["hexadecimal"]:
        return sign * _hexadecimal(found["hexadecimal"])
    return sign * float(text.strip("+-"))


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf


_PARSE: dict[Kind, Callable[[str], Any]] = {
    Kind.INTEGER: lambda text: _integer(text, 32),
    Kind.LONG: lambda text: _integer(text, 64),
    Kind.DOUBLE: _double,
    Kind.BOOLEAN: lambda text: text.lower() == "true",
}
