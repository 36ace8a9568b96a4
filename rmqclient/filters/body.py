"""Body filter: a JMESPath expression over bodies that are JSON, such as ``amount > `100` && contains(tags, 'new')``.

A message matches if the result of the expression is true in JMESPath: anything except ``false``, ``null``, ``""``,
``[]`` and ``{}``; 0 is true. A body that is not JSON or exceeds 1 MiB does not match. Nor does a body for which the
expression fails, such as ``length(id)`` or ``id > `7``` if ``id`` has another type. All of these are counted.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar

import jmespath
import orjson
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions

from rmqclient.errors import FilterError
from rmqclient.store.texts import is_utf8

MAX_CHARACTERS = 1_024
MAX_DEPTH = 40
"""Levels of brackets, and of the parsed tree: evaluating a level takes some Python calls."""
MAX_PARTS = 250
MAX_GROWTH = 64
"""How many times as large as the body a result on the way may become: ``[@, @][]`` doubles a list."""
MAX_BODY_BYTES = 1 << 20
EVALUATION_ERRORS = (JMESPathError, RecursionError, ArithmeticError, TypeError, ValueError)
"""What the evaluation of an expression, and the parsing of a body, raise."""

_SHOWN_CHARACTERS = 80
_TOGETHER = ("multi_select_list", "multi_select_dict", "function_expression")
"""Nodes whose result may hold what each child makes of the same value."""
_ONE_OF = ("comparator", "and_expression", "or_expression")
"""Nodes whose result is no larger than that of one child; of others, each child is given the result of the one before.
"""
_LITERAL = re.compile(r"'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`|\"(?:\\.|[^\"\\])*\"", re.DOTALL)


@dataclass(frozen=True, slots=True)
class BodyFilter:
    """A compiled expression; equal to one of the same text. Raises FilterError for one that cannot be compiled."""

    expression: str
    most_bytes: ClassVar[int] = MAX_BODY_BYTES
    """A longer body does not match, and need not be opened."""
    _compiled: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_compiled", parsed(self.expression))

    def matches(self, body: bytes) -> bool | None:
        """Return whether a message with this body passes; None, which means no, if it cannot be evaluated."""
        if len(body) > self.most_bytes:
            return None
        try:
            found = self._compiled.search(orjson.loads(body))
        except EVALUATION_ERRORS:
            return None
        return bool(found) or (isinstance(found, int | float) and found is not False)

    def __reduce__(self) -> tuple[type[BodyFilter], tuple[str]]:
        return type(self), (self.expression,)


def parsed(expression: object) -> Any:
    """Return a compiled expression whose evaluation is bounded, in depth and in size. Raises FilterError."""
    if not isinstance(expression, str):
        raise FilterError(f"jmespath({expression!r}): an expression is a str, not {type(expression).__name__}")
    if not expression.strip():
        raise FilterError(
            f"jmespath({expression!r}): the expression is empty; leave the filter out to take every message"
        )
    if len(expression) > MAX_CHARACTERS:
        raise FilterError(
            f"jmespath({_shown(expression)}): {len(expression):,} characters; at most {MAX_CHARACTERS:,}",
            MAX_CHARACTERS + 1,
        )
    if not is_utf8(expression):
        raise FilterError(f"jmespath({_shown(expression)}): half of a surrogate pair is not text")
    _check_brackets(expression)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", PendingDeprecationWarning)  # `paid` instead of 'paid'
            compiled = jmespath.compile(expression)
    except (JMESPathError, RecursionError, ValueError, TypeError, PendingDeprecationWarning) as error:
        column = getattr(error, "lex_position", None)
        at = f", column {column + 1}" if isinstance(column, int) else ""
        raise FilterError(
            f"jmespath({_shown(expression)}){at}: not JMESPath: {' '.join(str(error).split())[:200]}",
            column + 1 if isinstance(column, int) else 0,
        ) from error
    _check_tree(expression, compiled.parsed)
    if _growth(compiled.parsed) > MAX_GROWTH:
        raise FilterError(
            f"jmespath({_shown(expression)}): its result may become more than {MAX_GROWTH} times as large as the body: "
            "repeat fewer parts of it"
        )
    return compiled


def _check_brackets(expression: str) -> None:
    """Limit the nesting of brackets outside literals, before the parser recurses into them."""
    open_now = 0
    bare = _LITERAL.sub(lambda found: " " * len(found[0]), expression).replace("!=", "  ").replace("&&", "  ")
    for at, character in enumerate(bare):
        open_now += (character in "([{!&") - (character in ")]}")
        if open_now > MAX_DEPTH:
            raise FilterError(
                f"jmespath({_shown(expression)}), column {at + 1}: more than {MAX_DEPTH} levels of brackets, ! and &",
                at + 1,
            )


def _check_tree(expression: str, tree: dict[str, Any]) -> None:
    parts, depth, level = 0, 0, [tree]
    while level:
        for node in level:
            if node["type"] == "function_expression" and node["value"] not in Functions.FUNCTION_TABLE:
                raise FilterError(f"jmespath({_shown(expression)}): there is no function {node['value']}()")
        parts, depth = parts + len(level), depth + 1
        level = [child for node in level for child in node.get("children", ()) if isinstance(child, dict)]
        if parts > MAX_PARTS or depth > MAX_DEPTH:
            raise FilterError(
                f"jmespath({_shown(expression)}): more than {MAX_PARTS} parts, or {MAX_DEPTH} levels; shorten it"
            )


def _growth(node: dict[str, Any]) -> int:
    """Return how many times as large as what it is given the result of a node, or of one on the way, may be."""
    inside = [_growth(child) for child in node.get("children", ()) if isinstance(child, dict)]
    if node["type"] in _ONE_OF:
        return max(inside)
    if node["type"] not in _TOGETHER:
        return prod(inside)
    by_field: dict[object, int] = {}
    for child, growth in zip(node["children"], inside, strict=True):
        by_field[_field_of(child)] = by_field.get(_field_of(child), 0) + growth
    return max(by_field.pop(None, 0) + max(by_field.values(), default=0), 1)


def _field_of(node: dict[str, Any]) -> object:
    """Return the field in which a node begins, since fields lie beside each other; None for any other beginning."""
    while node["type"] not in (*_TOGETHER, *_ONE_OF) and node["children"]:
        node = node["children"][0]
    return node["value"] if node["type"] == "field" else None


def _shown(text: str) -> str:
    return ascii(text) if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]!a}..."
