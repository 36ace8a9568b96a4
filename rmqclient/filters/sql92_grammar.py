"""Grammar of SQL92 expressions: parses text into a tree, with RocketMQ's rules about which types can be compared.

::

    or          = and { OR and }
    and         = equality { AND equality }
    equality    = comparison { ( "=" | "<>" ) comparison | IS [ NOT ] NULL }
    comparison  = unary { ( ">" | ">=" | "<" | "<=" ) unary
                        | [ NOT ] BETWEEN unary AND unary
                        | [ NOT ] IN "(" string { "," string } ")"
                        | [ NOT ] ( CONTAINS | STARTSWITH | ENDSWITH ) string }
    unary       = ( "+" | "-" | NOT ) unary | literal | property | "(" or ")"
    literal     = string | integer | float | TRUE | FALSE | NULL
    string      = "'" { any character, "''" for "'" } "'"
    integer     = "0" | digit from 1 on { digit } [ "L" ]
    float       = 5. | 5.5 | .5 | 5E10 | 5.5E-10
    property    = letter, "_" or "$" { letter, digit, "_" or "$" }

Keywords may be in any case of letters; the names of properties are case-sensitive. Comments are ``/* */``, and ``--``
up to a line's end. The grammar is SelectorParser.jj of RocketMQ 5.1.4 (4.9 has no CONTAINS, STARTSWITH and ENDSWITH),
with the checks of ComparisonExpression, ConstantExpression and UnaryExpression. As in RocketMQ, ``NOT`` binds closer
than ``=``: ``NOT a = 3`` is ``(NOT a) = 3``; write ``NOT (a = 3)``. One difference is deliberate: RocketMQ ignores text
after a complete expression, so that ``a LIKE 'x%'`` means ``a``; here that is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from rmqclient.errors import FilterError
from rmqclient.filters.sql92_tree import (
    NUMBERS,
    TRUTHS,
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
    depth_of,
    kind_of,
)
from rmqclient.store.texts import is_utf8

MAX_CHARACTERS = 4_096
MAX_DEPTH = 40
"""Levels of the tree. A level of brackets takes six calls of the parser; this stays far from Python's own limit."""
MAX_NODES = 500

_SHOWN_CHARACTERS = 80


def parse(text: str) -> Node:
    """Parse an expression that gives a truth value, and return its tree.

    Raises FilterError, with the column counted from 1, for wrong syntax, for values that can never be compared, and for
    more than 4,096 characters, 500 nodes or 40 levels.
    """
    if not isinstance(text, str):
        raise FilterError(f"sql({text!r}): an expression is a str, not {type(text).__name__}")
    if len(text) > MAX_CHARACTERS:
        raise FilterError(
            f"sql({_shown(text)}): {len(text):,} characters; at most {MAX_CHARACTERS:,}", MAX_CHARACTERS + 1
        )
    if not is_utf8(text):
        raise FilterError(f"sql({_shown(text)}): half of a surrogate pair is not text")
    return _Parser(text).whole()


# --- tokens ---------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""
    (?P<blank>   [\ \t\n\r\f]++ | --[^\n\r]*+ | /\*.*?\*/ )
  | (?P<float>   [0-9]++\.[0-9]*+(?:E[+-]?[0-9]++)? | \.[0-9]++(?:E[+-]?[0-9]++)? | [0-9]++E[+-]?[0-9]++ )
  | (?P<integer> 0 | [1-9][0-9]*+L? )
  | (?P<string>  '(?:''|[^'])*+' )
  | (?P<word>    [A-Z_$][A-Z0-9_$]*+ )
  | (?P<sign>    <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL | re.ASCII,
)

_KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
_ORDERS = frozenset((">", ">=", "<", "<="))
_TEXTS = frozenset(("CONTAINS", "STARTSWITH", "ENDSWITH"))

_INSTEAD = {
    "!": "write <> for not equal",
    "==": "write = for equal",
    "LIKE": "there is no LIKE: use CONTAINS, STARTSWITH or ENDSWITH",
    "+": "there is no arithmetic",
    "-": "there is no arithmetic",
    "*": "there is no arithmetic",
    "/": "there is no arithmetic",
    "%": "there is no arithmetic",
    '"': "put strings in single quotes",
    "'": "the string has no end; write a quote inside it twice",
}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """``float``, ``integer``, ``string``, ``word``, ``end``, or the keyword in capitals, or the sign itself."""
    text: str
    at: int


def _tokens(text: str) -> list[_Token]:
    tokens = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            _fail(text, at, "the comment has no end" if text.startswith("/*", at) else _unexpected(text[at]))
        if found.lastgroup != "blank":
            tokens.append(_Token(_kind_of_token(str(found.lastgroup), found[0]), found[0], at))
        at = found.end()
    return [*tokens, _Token("end", "", len(text))]


def _kind_of_token(group: str, text: str) -> str:
    if group == "sign":
        return text
    return text.upper() if group == "word" and text.upper() in _KEYWORDS else group


def _unexpected(text: str) -> str:
    hint = _INSTEAD.get(text.upper())
    return f"{text!r} is not expected here{f'; {hint}' if hint else ''}"


def _fail(text: str, at: int, problem: str) -> NoReturn:
    raise FilterError(f"sql({_shown(text)}), column {at + 1}: {problem}", at + 1)


def _shown(text: str) -> str:
    return ascii(text) if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]!a}..."


# --- the parser -----------------------------------------------------------------------------------


class _Parser:
    """One method for each rule of the grammar. The limit on the depth of the tree also limits the calls."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._nodes = 0
        self._open = 0

    def whole(self) -> Node:
        start = self._token
        if start.kind == "end":
            self._fail(start, "the expression is empty; leave the filter out to take every message")
        node = self._truth(self._or(), start)
        if depth_of(node) > MAX_DEPTH:
            self._too_deep(start)
        if self._token.kind != "end":
            self._fail(self._token, f"the expression ends before this: {self._what(self._token)}")
        return node

    def _or(self) -> Node:
        return self._chain("OR", self._and, Or)

    def _and(self) -> Node:
        return self._chain("AND", self._equality, And)

    def _chain(self, keyword: str, operand: Callable[[], Node], made: type[And | Or]) -> Node:
        start = self._token
        first = operand()
        if self._token.kind != keyword:
            return first
        operands = [self._truth(first, start)]
        while self._accept(keyword):
            start = self._token
            operands.append(self._truth(operand(), start))
        return self._made(made(tuple(operands)))

    def _equality(self) -> Node:
        left = self._comparison()
        while (token := self._token).kind in {"=", "<>", "IS"}:
            self._next += 1
            if token.kind == "IS":
                negated = self._accept("NOT")
                self._expect("NULL")
                left = self._made(Equal(left, Literal(Kind.NULL, None)))
            else:
                right = self._comparison()
                self._check_equal(token, left, right)
                negated = token.kind == "<>"
                left = self._made(Equal(left, right))
            if negated:
                left = self._made(Not(left))
        return left

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            token = self._token
            negated = token.kind == "NOT"
            if negated:
                token = self._tokens[self._next + 1] if self._next + 1 < len(self._tokens) else token
            if token.kind in _ORDERS and not negated:
                self._next += 1
                left = self._order(token, token.kind, left, self._unary())
            elif token.kind in {"BETWEEN", "IN", *_TEXTS}:
                self._next += 1 + negated
                if token.kind == "BETWEEN":
                    left = self._between(token, left, negated)
                elif token.kind == "IN":
                    left = self._in(token, left, negated)
                else:
                    left = self._made(Text(token.kind, left, self._string(), negated))
            else:
                return left

    def _between(self, token: _Token, value: Node, negated: bool) -> Node:
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        if negated:
            below, above = self._order(token, "<", value, low), self._order(token, ">", value, high)
            return self._made(Or((below, above)))
        above, below = self._order(token, ">=", value, low), self._order(token, "<=", value, high)
        if isinstance(low, Literal) and isinstance(high, Literal) and low.value > high.value:  # type: ignore[operator]
            self._fail(token, f"nothing is between {low.value} and {high.value}: the lower one comes first")
        return self._made(And((above, below)))

    def _in(self, token: _Token, left: Node, negated: bool) -> Node:
        if not isinstance(left, Property):
            self._fail(token, "IN must follow the name of a property")
        self._expect("(")
        strings = [self._string()]
        while self._accept(","):
            strings.append(self._string())
        self._expect(")")
        return self._made(In(left.name, frozenset(strings), negated), len(strings))

    def _unary(self) -> Node:
        token = self._token
        if token.kind in {"+", "-", "NOT", "("}:
            self._next += 1
            self._open += 1
            if self._open > MAX_DEPTH:
                self._too_deep(token)
            node = self._or() if token.kind == "(" else self._unary()
            if token.kind == "(":
                self._expect(")")
            elif token.kind == "-":
                node = self._made(Negative(node))
            elif token.kind == "NOT":
                node = self._truth(node, token)
                node = self._made(Not(node))
            self._open -= 1
            return node
        return self._primary(token)

    def _primary(self, token: _Token) -> Node:
        match token.kind:
            case "string":
                return self._made(Literal(Kind.STRING, self._string()))
            case "integer":
                literal = self._integer(token)
            case "float":
                literal = self._float(token)
            case "TRUE" | "FALSE":
                literal = Literal(Kind.BOOLEAN, token.kind == "TRUE")
            case "NULL":
                literal = Literal(Kind.NULL, None)
            case "word":
                self._next += 1
                return self._made(Property(token.text))
            case _:
                self._fail(token, f"a property, a value or a bracket is expected here, not {self._what(token)}")
        self._next += 1
        return self._made(literal)

    def _string(self) -> str:
        return self._expect("string").text[1:-1].replace("''", "'")

    def _integer(self, token: _Token) -> Literal:
        value = int(token.text.rstrip("lL")) if len(token.text) <= 20 else 1 << 63  # 19 digits and an L
        if value >= 1 << 63:
            self._fail(token, f"{token.text[:40]} is greater than {(1 << 63) - 1}, the greatest integer")
        return Literal(Kind.INTEGER if value < 1 << 31 else Kind.LONG, value)

    def _float(self, token: _Token) -> Literal:
        value = float(token.text)
        if value == 0 or math.isinf(value):
            self._fail(token, f"{token.text[:40]} is not a number between 5E-324 and 1.8E308")
        return Literal(Kind.DOUBLE, value)

    def _order(self, token: _Token, operator: str, left: Node, right: Node) -> Node:
        for side in (left, right):
            if isinstance(side, TRUTHS) or (isinstance(side, Literal) and side.kind not in NUMBERS):
                self._fail(token, f"{token.kind} compares numbers and properties, nothing else")
        return self._made(Ordered(operator, left, right))

    def _check_equal(self, token: _Token, left: Node, right: Node) -> None:
        if any(isinstance(side, Literal) and side.kind is Kind.NULL for side in (left, right)):
            self._fail(token, f"nothing is {token.kind} NULL: write IS NULL or IS NOT NULL")
        constants = isinstance(left, Literal) and isinstance(right, Literal)
        if constants and kind_of(left) is Kind.BOOLEAN and kind_of(right) is not Kind.BOOLEAN:
            self._fail(token, "TRUE and FALSE cannot be compared with another constant")

    def _truth(self, node: Node, token: _Token) -> Node:
        """Check that a node gives a truth value; a property is taken for one."""
        if isinstance(node, Property):
            return self._made(Present(node.name))
        if isinstance(node, Negative) or (isinstance(node, Literal) and node.kind not in {Kind.BOOLEAN, Kind.NULL}):
            self._fail(token, "this is neither true nor false: compare it with something")
        return node

    def _made(self, node: Node, parts: int = 1) -> Node:
        self._nodes += parts
        if self._nodes > MAX_NODES:
            self._fail(self._token, f"the expression has more than {MAX_NODES} parts; make it shorter")
        return node

    def _too_deep(self, token: _Token) -> NoReturn:
        self._fail(token, f"the expression is nested more than {MAX_DEPTH} deep; make it flatter")

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _accept(self, kind: str) -> bool:
        accepted = self._token.kind == kind
        self._next += accepted
        return accepted

    def _expect(self, kind: str) -> _Token:
        token = self._token
        if token.kind != kind:
            wanted = "a string in single quotes" if kind == "string" else kind
            self._fail(token, f"{wanted} is expected here, not {self._what(token)}")
        self._next += 1
        return token

    def _what(self, token: _Token) -> str:
        if token.kind == "end":
            return "the end"
        text = token.text
        if text == "=" and self._text[token.at - 1] == "=":
            text = "=="
        hint = _INSTEAD.get(text.upper())
        return f"{text[:40]!a}{f' ({hint})' if hint else ''}"

    def _fail(self, token: _Token, problem: str) -> NoReturn:
        _fail(self._text, token.at, problem)
