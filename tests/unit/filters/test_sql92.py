"""SQL92 expressions: RocketMQ's results, vector by vector, and against a slow evaluator written after its classes."""

from __future__ import annotations

import dataclasses
import pickle
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqclient.errors import FilterError, HandlerError
from rmqclient.filters.sql92 import Sql92
from rmqclient.filters.sql92_grammar import MAX_CHARACTERS, MAX_DEPTH, MAX_NODES
from tests.support.oracle import filter as reference_filter
from tests.support.oracle.filter import Tree
from tests.support.sweeps import share_of

BIG = str(2**63 - 1)

MATCHES = [
    # literals and typing: a property is parsed as what it is compared with
    ("a = 3", "3", True),
    ("a = 3", "+3", True),
    ("a = 3", "03", True),
    ("a = 3", "3.0", False),
    ("a = 3", "3 ", False),
    ("a = 3", "abc", False),
    ("a = 3", "", False),
    ("a <> 3", "4", True),
    ("a <> 3", "abc", False),
    ("a > 5", "5 ", False),
    ("a > 5", "2147483648", False),
    ("a > 5", "2147483647", True),
    ("a > 5L", "2147483648", False),
    ("a > 2147483648", "2147483649", True),
    ("a < 2147483648", "2147483647", True),
    (f"a = {BIG}", BIG, True),
    (f"a <= {BIG}", str(2**63), False),
    ("a = 3.0", "3", True),
    ("a = 3.0", " 3.0 ", True),
    ("a = 3.0", "3.0f", True),
    ("a = 3.0", "3_0", False),
    ("a > 3.1E10", "31415926535.0", True),
    ("a > 3.14", "3.1415", True),
    ("a = 5.", "5", True),
    ("a = .5", "0.5", True),
    ("a = 5E10", "50000000000", True),
    ("a = 0.5e-3", "0.0005", True),
    ("a = 4.0", "0x1p2", True),
    ("a > 1.5", "NaN", True),
    ("a < 1.5", "-Infinity", True),
    ("a > 1.5", "inf", False),
    ("a > 1.5", "0x1p99999", True),
    ("a > -5", "-4", True),
    ("a > - 5", "-6", False),
    ("a = +7", "7", True),
    ("3 = a", "3", True),
    ("5 > a", "3", True),
    ("a = '3'", "3", True),
    ("a = 'it''s'", "it's", True),
    ("a = '''''tag'''''", "''tag''", True),
    ("a = 'A'", "a", False),
    # truth values
    ("a = TRUE", "true", True),
    ("a = true", "TRUE", True),
    ("a = TRUE", "1", False),
    ("a = FALSE", "false", True),
    ("a = FALSE", "1", True),
    ("TRUE = a", "true", False),
    ("FALSE = a", "false", False),
    ("TRUE", None, True),
    ("FALSE", None, False),
    ("NULL", None, False),
    ("a", "true", False),
    ("a", None, False),
    ("NOT a", "anything", True),
    ("NOT a", None, False),
    ("3 = TRUE", None, False),
    ("(a = 3) = TRUE", "3", True),
    ("a = 3 = TRUE", "3", True),
    # null: a missing property is neither
    ("a <> 3", None, False),
    ("NOT a = 3", None, False),
    ("NOT (a = 3)", None, False),
    ("a NOT IN ('3')", None, False),
    ("a NOT BETWEEN 1 AND 3", None, False),
    ("a > 3", None, False),
    ("3 <> a", None, True),  # null on the right is false, not null
    ("a = b", None, True),  # and null equals null
    ("a IS NULL", None, True),
    ("a IS NULL", "", False),
    ("a is not null", "2", True),
    ("a is not null", None, False),
    ("(a > 3) IS NULL", None, True),
    ("a > 3 IS NULL", "1", False),
    ("a IS NULL OR a = 'hello'", "hello", True),
    ("a IS NULL OR a = 'hello'", "abc", False),
    ("a is not null and a='hello'", "hello", True),
    ("a = 3 OR TRUE", None, True),
    ("a = 3 AND FALSE", None, False),
    ("NOT (a = 3 AND FALSE)", None, True),
    ("-a IS NULL", "3", True),
    # NOT binds closer than =
    ("NOT a = 3", "4", False),
    ("NOT (a = 3)", "4", True),
    ("NOT NOT (a = 3)", "3", True),
    # an exception decides everything
    ("a = 3 OR a = 'abc'", "abc", False),
    ("a = 'abc' OR a = 3", "abc", True),
    ("a = 'abd' AND a = 3", "abc", False),
    ("NOT (a = 3)", "abc", False),
    # BETWEEN and IN
    ("a between 2 and 10", "2", True),
    ("a between 2 and 10", "10", True),
    ("a between 2 and 10", "11", False),
    ("a not between 2 and 10", "1", True),
    ("a not between 2 and 10", "10", False),
    ("a not between 10 and 2", "5", True),
    ("a between 2 and 2", "2", True),
    ("a between -3 and 3", "-3", True),
    ("a between 2 and 3 and a between 3 and 4", "3", True),
    ("a in ('3', '4', '5')", "4", True),
    ("a in ('3', '4', '5')", "8", False),
    ("a not in ('3', '4', '5')", "8", True),
    ("a not in ('3', '4', '5')", "5", False),
    ("(a) IN ('x')", "x", True),
    # two properties: equal as strings, ordered as doubles
    ("a = b", "3.14", False),
    ("a = a", "x", True),
    ("a >= a", "x", False),
    ("a >= a", "3.0", True),
    ("a > a", "NaN", False),
    # since 5.1.4
    ("a CONTAINS 'b'", "abc", True),
    ("a NOT CONTAINS 'b'", "abc", False),
    ("a NOT CONTAINS 'x'", "abc", True),
    ("a NOT CONTAINS 'x'", None, False),
    ("a startswith 'ab'", "abc", True),
    ("a NOT startswith 'b'", "abc", True),
    ("a ENDSWITH 'bc'", "abc", True),
    ("a NOT ENDSWITH 'bc'", "abc", False),
    ("a CONTAINS ''", "abc", False),
    ("a NOT CONTAINS ''", "abc", False),
    ("NOT ((a = 5) CONTAINS 'x')", "7", True),
    ("NOT ((a = 5) CONTAINS 'x')", "", False),  # the comparison of '' with a number raises
    ("NOT ((a = 5) CONTAINS '')", "", True),  # and is not looked at here
    # words, blanks, comments
    ("a=3 aNd a<4\tOr\fFALSE", "3", True),
    ("a /* of /* order ** */ = 3 -- not 4\n", "3", True),
    ("a = 3 -- the end", "3", True),
    ("now = 3 or a = 3", "3", True),
    ("((((a)))) = ((3))", "3", True),
]


@pytest.mark.guarantee("G15")
@pytest.mark.parametrize(("expression", "value", "expected"), MATCHES)
def test_an_expression_matches_what_it_matches_in_rocketmq(expression: str, value: str | None, expected: bool) -> None:
    assert Sql92(expression).matches({} if value is None else {"a": value}) is expected


@pytest.mark.parametrize(
    ("expression", "properties", "expected"),
    [
        ("a=3 and b<>4 And c>5 AND d<=4", {"a": "3", "b": "5", "c": "6", "d": "1"}, True),
        ("a=3 and b<>4 And c>5 AND d<=4", {"a": "4", "b": "5", "c": "6", "d": "1"}, False),
        ("a=3 or b<>4 Or c>5 OR d<=4", {"a": "4", "b": "4", "c": "3", "d": "2"}, True),
        ("a=3 or b<>4 Or c>5 OR d<=4", {"a": "4", "b": "4", "c": "4", "d": "10"}, False),
        ("a=TRUE OR b=FALSE", {"a": "false", "b": "true"}, False),
        ("a=TRUE OR b=FALSE", {"a": "false", "b": "false"}, True),
        ("a > b", {"a": "10", "b": "20"}, False),
        ("a > b", {"a": "20", "b": "10"}, True),
        ("a > b", {"a": "20", "b": "ten"}, False),
        ("a = b", {"a": "1", "b": "1.0"}, False),
        ("a between up and low", {"a": "3.14", "up": "up", "low": "low"}, False),
        ("a between up and low", {"a": "3.14", "up": "3", "low": "4"}, True),
        ("a >= b", {"a": "-0.0", "b": "0.0"}, False),
        ("TAGS IS NOT NULL AND TAGS = 'paid'", {"TAGS": "paid"}, True),
        ("KEYS CONTAINS '7'", {"KEYS": "5 7"}, True),
        ("A = '1'", {"a": "1"}, False),
        ("$x_1 = '1' AND _y = '2'", {"$x_1": "1", "_y": "2"}, True),
    ],
)
def test_an_expression_over_several_properties(expression: str, properties: dict[str, str], expected: bool) -> None:
    assert Sql92(expression).matches(properties) is expected


@pytest.mark.guarantee("G15")
@pytest.mark.parametrize(
    ("expression", "column", "problem"),
    [
        ("a = 1 garbage", 7, "the expression ends before this: 'garbage'"),
        ("a like 'x%'", 3, "there is no LIKE: use CONTAINS"),
        ("a + 1 = 2", 3, "there is no arithmetic"),
        ("a = 1 + 2", 7, "there is no arithmetic"),
        ("a = 1)", 6, "the expression ends before this: ')'"),
        ("a == 1", 4, "write = for equal"),
        ("a != 1", 3, "write <> for not equal"),
        ('a = "x"', 5, "single quotes"),
        ("a = 'x", 5, "the string has no end"),
        ("a /* x", 3, "the comment has no end"),
        ("a = ", 5, "expected here, not the end"),
        ("(a = 1", 7, ") is expected here, not the end"),
        ("a = 007", 6, "ends before this: '0'"),
        ("a = 1x", 6, "ends before this: 'x'"),
        ("a > 'x'", 3, "> compares numbers and properties, nothing else"),
        ("a >= TRUE", 3, ">= compares numbers"),
        ("a > b > c", 7, "> compares numbers"),
        ("a = NULL", 3, "write IS NULL"),
        ("NULL <> a", 6, "write IS NULL"),
        ("a IS 3", 6, "NULL is expected here, not '3'"),
        ("TRUE = 5", 6, "TRUE and FALSE cannot be compared"),
        ("a between 5 and 2", 3, "nothing is between 5 and 2"),
        ("a between 2.5 and 2", 3, "nothing is between 2.5 and 2"),
        ("a between NULL and 2", 3, "BETWEEN compares numbers"),
        ("a between 'a' and 'b'", 3, "BETWEEN compares numbers"),
        ("a between 1, 2", 12, "AND is expected here, not ','"),
        ("a in (1, 2)", 7, "a string in single quotes is expected here, not '1'"),
        ("a in ()", 7, "a string in single quotes"),
        ("'x' in ('x')", 5, "IN must follow the name of a property"),
        ("a contains 5", 12, "a string in single quotes"),
        ("a = 9223372036854775808", 5, "greater than 9223372036854775807"),
        ("a = -9223372036854775808", 6, "greater than 9223372036854775807"),
        ("a > 0.0", 5, "not a number between 5E-324 and 1.8E308"),
        ("a > 1E309", 5, "not a number between"),
        ("5", 1, "neither true nor false"),
        ("a = 1 AND 5", 11, "neither true nor false"),
        ("NOT 'x'", 1, "neither true nor false"),
        ("-a", 1, "neither true nor false"),
        ("", 1, "the expression is empty"),
        ("  -- nothing", 13, "the expression is empty"),
        ("a = 1;", 6, "';' is not expected here"),
        ("ä = 1", 1, "is not expected here"),
        ("a = 1\n AND\n b == 2", 16, "write = for equal"),
    ],
)
def test_a_bad_expression_is_refused_with_its_column(expression: str, column: int, problem: str) -> None:
    with pytest.raises(FilterError, match=re.escape(problem)) as refused:
        Sql92(expression)
    assert refused.value.column == column
    assert f"column {column}: " in str(refused.value)
    assert isinstance(refused.value, HandlerError)
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize(
    ("expression", "limit"),
    [
        ("a = '" + "x" * MAX_CHARACTERS + "'", f"at most {MAX_CHARACTERS:,}"),
        ("(" * (MAX_DEPTH + 1) + "a = 1" + ")" * (MAX_DEPTH + 1), f"more than {MAX_DEPTH} deep"),
        ("(" * 2_000 + "a", f"more than {MAX_DEPTH} deep"),
        ("NOT " * 1_000 + "a", f"more than {MAX_DEPTH} deep"),
        ("a > " + "-+ " * 1_000 + "a", f"more than {MAX_DEPTH} deep"),
        ("a" + " = b" * MAX_DEPTH, f"more than {MAX_DEPTH} deep"),
        ("a" + " IS NULL" * 200, f"more than {MAX_DEPTH} deep"),
        (" OR ".join(["a IS NULL"] * 300), f"more than {MAX_NODES} parts"),
        ("a IN (" + ", ".join(["'x'"] * (MAX_NODES + 1)) + ")", f"more than {MAX_NODES} parts"),
    ],
)
def test_an_expression_that_costs_too_much_is_refused_with_the_limit(expression: str, limit: str) -> None:
    with pytest.raises(FilterError, match=re.escape(limit)) as refused:
        Sql92(expression)
    assert len(str(refused.value)) < 300


def test_the_largest_expressions_are_accepted() -> None:
    deep = "(" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH
    assert Sql92(deep).matches({"a": "1"})
    wide = " OR ".join([f"a = {number}" for number in range(160)])
    assert Sql92(wide).matches({"a": "159"})
    assert Sql92("a = '" + "x" * (MAX_CHARACTERS - 6) + "'").matches({"a": "x" * (MAX_CHARACTERS - 6)})


def test_a_property_of_any_length_costs_little() -> None:
    digits = "1" * 32_000
    assert not Sql92("a > 1.5").matches({"a": digits + "x"})
    assert not Sql92("a > 1").matches({"a": digits})
    assert not Sql92("a > b").matches({"a": digits, "b": digits})


def test_a_filter_is_a_value_that_can_be_sent_to_another_process() -> None:
    found = Sql92("a = 1")
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert again.matches({"a": "1"})
    assert {found: 1}[again] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.expression = "b = 1"  # type: ignore[misc]


def test_an_error_keeps_its_column_on_its_way_to_another_process() -> None:
    with pytest.raises(FilterError) as refused:
        Sql92("a = 1 x")
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.column) == (str(refused.value), 7)


# --- against the slow evaluator -------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c"])
texts = st.sampled_from(
    ["", "x", "abc", "3", "3.0", " 3", "-7", "2147483648", "true", "it's", "NaN", "-0.0", "1e3", BIG, "5d"]
)
properties = st.dictionaries(names, texts)

property_ = names.map(lambda name: ("property", name))
numbers = st.sampled_from(["0", "3", "7", "2147483647", "2147483648", "3L", BIG, "3.0", ".5", "1E3"]).map(
    lambda text: ("number", text)
)
negatives = st.one_of(numbers, property_).map(lambda operand: ("-", operand))
strings = texts.map(lambda text: ("string", text))
constants = st.sampled_from([("constant", "TRUE"), ("constant", "FALSE")])
measures = st.one_of(property_, property_, numbers, negatives)


def comparisons(truths: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    sides = st.one_of(property_, numbers, negatives, strings, truths)
    search = st.sampled_from(["CONTAINS", "NOT CONTAINS", "STARTSWITH", "NOT STARTSWITH", "ENDSWITH", "NOT ENDSWITH"])
    return st.one_of(
        st.tuples(st.sampled_from(["=", "<>"]), sides, st.one_of(sides, constants)),
        st.tuples(st.sampled_from(["=", "<>"]), st.one_of(constants, truths), st.one_of(property_, truths)),
        st.tuples(st.sampled_from([">", ">=", "<", "<="]), measures, measures),
        st.tuples(st.sampled_from(["NOT BETWEEN"]), measures, measures, measures),
        st.tuples(st.just("BETWEEN"), measures, st.one_of(property_, negatives), measures),
        st.tuples(st.sampled_from(["IN", "NOT IN"]), names, texts, texts),
        st.tuples(st.sampled_from(["IS NULL", "IS NOT NULL"]), sides),
        st.tuples(search, sides, strings),
    )


def connections(truths: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    either = st.one_of(truths, property_, constants, st.just(("constant", "NULL")))
    return st.one_of(
        comparisons(truths),
        st.tuples(st.sampled_from(["AND", "OR"]), either, either),
        st.tuples(st.just("NOT"), either),
    )


trees = st.recursive(comparisons(st.just(("IS NULL", ("property", "a")))), connections, max_leaves=6)


@pytest.mark.guarantee("G15")
@settings(max_examples=share_of(500), deadline=None)
@given(tree=trees, found=st.lists(properties, min_size=1, max_size=8))
def test_what_matches_is_what_the_slow_evaluator_matches(tree: Tree, found: list[dict[str, str]]) -> None:
    compiled = Sql92(reference_filter.rendered(tree))
    for each in found:
        assert compiled.matches(each) == reference_filter.matched(tree, each)


WORDS = [
    *[
        "a",
        "b",
        "AND",
        "OR",
        "NOT",
        "(",
        ")",
        "=",
        "<>",
        ">",
        "<=",
        "IS",
        "NULL",
        "BETWEEN",
        "IN",
        ",",
        "-",
        "+",
        "TRUE",
    ],
    *["'x'", "''", "5", "5.5", "CONTAINS", "--", "/*", "*/", "\n", "'", ".", "E", "\u017f", "\u212a", "\u0663", "\x00"],
]


@settings(max_examples=share_of(500), deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join)), properties)
def test_any_text_is_a_filter_or_a_filter_error(expression: str, found: dict[str, str]) -> None:
    try:
        compiled = Sql92(expression)
    except FilterError as error:
        assert error.column >= 1
        assert str(error)
    else:
        assert compiled.matches(found) in {True, False}


@given(
    st.text(max_size=30), st.sampled_from(["a = 5", "a > 5.5", "a = 3000000000", "a = TRUE", "a > b", "a CONTAINS 'x'"])
)
def test_any_property_matches_or_does_not(value: str, expression: str) -> None:
    assert Sql92(expression).matches({"a": value, "b": "1"}) in {True, False}
