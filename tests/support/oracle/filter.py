"""A slow evaluator of SQL92 expressions, written after RocketMQ's classes: every value carries its Java class.

An expression is a tuple, its operator first; :func:`rendered` writes it down and :func:`evaluated` says what it gives
for some properties. It shares nothing with the parser and the compiler that it is compared with.
"""

from __future__ import annotations

import struct
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

Tree = tuple[Any, ...]


class JavaError(Exception):
    """Whatever RocketMQ throws while it evaluates."""


class Value(NamedTuple):
    """A value that is not null."""

    kind: str
    value: Any


def rendered(tree: Tree) -> str:
    """Write an expression down, with brackets around whatever is not one word."""
    match tree:
        case ("property", name):
            return str(name)
        case ("string", text):
            return "'" + str(text).replace("'", "''") + "'"
        case ("number", text) | ("constant", text):
            return str(text)
        case ("-" | "NOT" as sign, operand):
            return f"{sign} ({rendered(operand)})"
        case ("IS NULL" | "IS NOT NULL" as sign, operand):
            return f"({rendered(operand)}) {sign}"
        case ("IN" | "NOT IN" as sign, name, *strings):
            return f"{name} {sign} ({', '.join(rendered(('string', text)) for text in strings)})"
        case ("BETWEEN" | "NOT BETWEEN" as sign, value, low, high):
            return f"({rendered(value)}) {sign} ({rendered(low)}) and ({rendered(high)})"
        case (sign, left, right):
            if "CONTAINS" in sign or "WITH" in sign:
                return f"({rendered(left)}) {sign} {rendered(right)}"
            return f"({rendered(left)}) {sign} ({rendered(right)})"
    raise AssertionError(tree)


def matched(tree: Tree, properties: dict[str, str]) -> bool:
    """As ExpressionMessageFilter.isMatchedByCommitLog: an exception, null and what is no Boolean do not match."""
    try:
        return truth(tree, properties) is True
    except JavaError:
        return False


def truth(tree: Tree, properties: dict[str, str]) -> bool | None:
    """What SelectorParser.asBooleanExpression makes of an operand, evaluated."""
    value = evaluated(tree, properties)
    if value is None:
        return None
    return bool(value.value) if value.kind == "Boolean" else False


def evaluated(tree: Tree, properties: dict[str, str]) -> Value | None:  # noqa: C901, PLR0912 - one case an operator
    """What an expression gives; None for null. Raises JavaError."""
    match tree:
        case ("property", name):
            return Value("String", properties[name]) if name in properties else None
        case ("string", text):
            return Value("String", text)
        case ("number", text):
            return number(text)
        case ("constant", text):
            return None if text == "NULL" else Value("Boolean", text == "TRUE")
        case ("-", operand):
            value = evaluated(operand, properties)
            return Value(value.kind, -value.value) if value and value.kind in {"Integer", "Long", "Double"} else None
        case ("NOT", operand):
            return boolean(inverted(truth(operand, properties)))
        case ("AND" | "OR" as sign, left, right):
            return boolean(connected(sign, left, right, properties))
        case ("IS NULL", operand):
            return boolean(evaluated(operand, properties) is None)
        case ("IS NOT NULL", operand):
            return boolean(evaluated(operand, properties) is not None)
        case ("IN" | "NOT IN" as sign, name, *strings):
            return boolean(None if name not in properties else (properties[name] in strings) == (sign == "IN"))
        case ("BETWEEN", value, low, high):
            return evaluated(("AND", (">=", value, low), ("<=", value, high)), properties)
        case ("NOT BETWEEN", value, low, high):
            return evaluated(("OR", ("<", value, low), (">", value, high)), properties)
        case ("=", left, right):
            return boolean(equal(evaluated(left, properties), evaluated(right, properties)))
        case ("<>", left, right):
            return boolean(inverted(equal(evaluated(left, properties), evaluated(right, properties))))
        case (">" | ">=" | "<" | "<=" as sign, left, right):
            return boolean(ordered(sign, evaluated(left, properties), evaluated(right, properties)))
        case (_, _, (_, "")):  # ContainsExpression: before a look at the operand, which could raise
            return boolean(False)
        case (sign, left, right):
            return boolean(searched(sign, evaluated(left, properties), right[1]))
    raise AssertionError(tree)


def boolean(value: bool | None) -> Value | None:
    return None if value is None else Value("Boolean", value)


def inverted(value: bool | None) -> bool | None:
    return None if value is None else not value


def connected(sign: str, left: Tree, right: Tree, properties: dict[str, str]) -> bool | None:
    decides = sign == "OR"
    first = truth(left, properties)
    if first is decides:
        return decides
    second = truth(right, properties)
    if second is decides:
        return decides
    return None if first is None or second is None else not decides


def searched(sign: str, value: Value | None, text: str) -> bool:
    if not text or value is None or value.kind != "String":
        return False
    string: str = value.value
    found = {
        "CONTAINS": text in string,
        "STARTSWITH": string[: len(text)] == text,
        "ENDSWITH": string[-len(text) :] == text,
    }
    return found[sign.removeprefix("NOT ")] != sign.startswith("NOT ")


def equal(left: Value | None, right: Value | None) -> bool | None:
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    return left == right or compared(left, right) == 0


def ordered(sign: str, left: Value | None, right: Value | None) -> bool | None:
    if left is None or right is None:
        return None
    if left.kind == right.kind == "String":
        left, right = Value("Double", double(left.value)), Value("Double", double(right.value))
    answer = compared(left, right)
    return {">": answer > 0, ">=": answer >= 0, "<": answer < 0, "<=": answer <= 0}[sign]


def compared(left: Value, right: Value) -> int:
    """ComparisonExpression.__compare."""
    kinds = {left.kind, right.kind}
    if left.kind != right.kind:
        if "String" in kinds:
            if left.kind == "Boolean":
                raise JavaError("ClassCastException")
            other = right if left.kind == "String" else left
            left, right = (converted(side, other.kind) if side.kind == "String" else side for side in (left, right))
        elif "Boolean" in kinds:
            return -1
        elif "Double" in kinds:
            left, right = Value("Double", float(left.value)), Value("Double", float(right.value))
    if left.kind == "Double":
        return sign_of(total_order(left.value), total_order(right.value))
    return sign_of(left.value, right.value)


def sign_of(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def total_order(value: float) -> int:
    """Double.compareTo orders by the bits: -0.0 below 0.0, and NaN, of which Java has one, above everything."""
    bits: int = struct.unpack(">q", struct.pack(">d", value))[0]
    if value != value:  # noqa: PLR0124 - NaN
        return 1 << 63
    return bits if bits >= 0 else -(bits & (1 << 63) - 1) - 1


def converted(value: Value, kind: str) -> Value:
    text: str = value.value
    if kind == "Boolean":
        return Value(kind, text.lower() == "true")
    if kind == "Double":
        return Value(kind, double(text))
    digits = text[1:] if text[:1] in {"+", "-"} else text
    bound = 1 << (31 if kind == "Integer" else 63)
    if not (digits.isascii() and digits.isdigit() and -bound <= int(text) < bound):
        raise JavaError("NumberFormatException")
    return Value(kind, int(text))


def double(text: str) -> float:
    """Double.valueOf, for what these tests write: no hexadecimal floats."""
    text = text.strip()
    if text.lstrip("+-").lower().startswith(("nan", "inf", "snan")) or "_" in text:
        if text.lstrip("+-") in {"NaN", "Infinity"} and len(text) - len(text.lstrip("+-")) <= 1:
            return float(text)
        raise JavaError("NumberFormatException")
    text = text[:-1] if text[-1:] in set("fFdD") else text
    try:
        Decimal(text)
        return float(text)
    except (InvalidOperation, ValueError) as error:
        raise JavaError("NumberFormatException") from error


def number(text: str) -> Value:
    if any(letter in text for letter in ".eE"):
        return Value("Double", float(text))
    value = int(text.rstrip("lL"))
    return Value("Integer" if value < 1 << 31 else "Long", value)
