"""Names of topics and groups: what is accepted, and what a refusal tells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.names import check_group, check_topic
from rmqclient.store.errors import InvalidName

ALPHABET = "%abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

GOOD = ["a", "orders", "Orders_2024-01", "%percent", "0", "-", "a" * 127]
BAD = ["", "a" * 128, ".", "..", "a.b", "a/b", "a b", "a|b", "orders\n", "\n", "a\0", "größe", "注文", "a\udc80"]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_name_is_returned(name: str) -> None:
    assert check_topic(name) == name
    assert check_group(name) == name


@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidName, match=r"^topic "):
        check_topic(name)
    with pytest.raises(InvalidName, match=r"^group "):
        check_group(name)


@pytest.mark.parametrize("name", [None, 5, b"orders", ["orders"]])
def test_a_name_that_is_no_text_is_refused_by_its_type(name: object) -> None:
    with pytest.raises(InvalidName, match=f"a name is a str, not {type(name).__name__}"):
        check_topic(name)  # type: ignore[arg-type]


def test_a_refusal_shows_the_name_the_rule_and_what_to_do() -> None:
    with pytest.raises(InvalidName) as refused:
        check_topic("eu.orders/new")
    assert str(refused.value) == (
        "topic 'eu.orders/new': a name has 1 to 127 of the characters % a-z A-Z 0-9 _ -; "
        "replace '.' '/', for instance by '-'"
    )


def test_a_refusal_of_a_long_name_is_short() -> None:
    with pytest.raises(InvalidName, match="shorten it, it has 1,000,000") as refused:
        check_group("g" * 1_000_000)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("topic", ["%RETRY%billing", "%DLQ%billing", "%RETRY%", "%DLQ%"])
def test_a_reserved_topic_is_only_for_who_asks_for_it(topic: str) -> None:
    with pytest.raises(InvalidName, match="reserved"):
        check_topic(topic)
    assert check_topic(topic, reserved=True) == topic


def test_asking_for_reserved_topics_does_not_widen_the_alphabet() -> None:
    with pytest.raises(InvalidName):
        check_topic("%DLQ%a.b", reserved=True)


@given(st.text(max_size=130) | st.text(ALPHABET, max_size=130))
def test_a_name_is_accepted_exactly_when_it_follows_the_rule(name: str) -> None:
    follows = 1 <= len(name) <= 127 and set(name) <= set(ALPHABET)
    try:
        accepted = check_group(name) == name
    except InvalidName:
        accepted = False
    assert accepted == follows
