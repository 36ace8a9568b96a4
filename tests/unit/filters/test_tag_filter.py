"""Tag expressions: what they mean, and that a hash alone never decides."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.filters.tag import TagFilter, parse_tags
from tests.support.oracle.reference import java_hash

tags = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="|*", min_codepoint=0x21), min_size=1, max_size=8
)
blanks = st.sampled_from(["", " ", "  ", "\t", "\n "])


@pytest.mark.parametrize("expression", [None, "", "*", " * ", "   "], ids=repr)
def test_no_expression_and_a_star_take_every_message(expression: str | None) -> None:
    everything = parse_tags(expression)
    assert (everything.expression, everything.tags, everything.tags_codes) == ("*", frozenset(), ())
    assert everything.matches("paid")
    assert everything.matches("")
    assert everything.matches(None)


def test_alternatives_are_trimmed_sorted_and_taken_once() -> None:
    found = parse_tags(" refunded||paid  ||\tpaid ")
    assert found.expression == "paid || refunded"
    assert found.tags == {"paid", "refunded"}
    assert found == parse_tags("paid || refunded")


def test_only_the_whole_tag_matches() -> None:
    found = parse_tags("paid || refunded")
    assert found.matches("paid")
    assert not found.matches("pai")
    assert not found.matches("PAID")
    assert not found.matches(" paid")
    assert not found.matches("")
    assert not found.matches(None)


def test_a_tag_may_contain_blanks_and_a_single_bar() -> None:
    assert parse_tags("a | b || c d").tags == {"a | b", "c d"}


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("T0", 2652),
        ("d", 100),
        ("中文", 646394),
        ("polygenelubricants", -2147483648),
        ("\U0001f600", 1772899),
    ],
)
def test_codes_are_the_hashes_of_java(tag: str, code: int) -> None:
    assert parse_tags(tag).tags_codes == (code,)


def test_tags_with_one_hash_have_one_code_and_do_not_match_each_other() -> None:
    # Given two tags that Java gives the same hash
    assert parse_tags("Aa").tags_codes == parse_tags("BB").tags_codes == parse_tags("Aa || BB").tags_codes == (2112,)
    # Then the text decides
    assert not parse_tags("Aa").matches("BB")


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("a || ", "'a ||': alternative 2 of 2 is empty"),
        ("|| a", "alternative 1 of 2 is empty"),
        ("a || || b", "alternative 2 of 3 is empty"),
        ("||", "alternative 1 of 2 is empty"),
        ("a || *", "already takes every message"),
        ("a\x01b", "separators of properties"),
        ("a\ud800", "surrogate"),
        ("a" * 4097, "4,097 characters; at most 4,096"),
        (5, "a str, not int"),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_a_bad_expression_is_refused_and_named(expression: str, problem: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_tags(expression)
    assert problem in str(refused.value)
    assert str(refused.value).startswith("tags ")
    assert len(str(refused.value)) < 250


def test_the_longest_expression_is_accepted() -> None:
    assert parse_tags("a" * 4096).tags == {"a" * 4096}


def test_a_filter_cannot_be_changed_and_is_a_key() -> None:
    found = parse_tags("a || b")
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.expression = "*"  # type: ignore[misc]
    assert {found: 1}[parse_tags("b||a")] == 1


@given(st.lists(st.tuples(blanks, tags, blanks), min_size=1, max_size=6))
def test_an_expression_selects_exactly_its_tags(alternatives: list[tuple[str, str, str]]) -> None:
    wanted = {tag for _, tag, _ in alternatives}
    found = parse_tags("||".join(map("".join, alternatives)))

    assert found.tags == wanted
    assert found == TagFilter(frozenset(wanted)) == parse_tags(found.expression)
    assert all(map(found.matches, wanted))
    assert set(found.tags_codes) == {java_hash(tag) for tag in wanted}
    assert list(found.tags_codes) == sorted(found.tags_codes)


@given(st.text(max_size=40))
def test_any_text_is_a_filter_or_a_value_error(expression: str) -> None:
    try:
        found = parse_tags(expression)
    except ValueError:
        return
    assert parse_tags(found.expression) == found
