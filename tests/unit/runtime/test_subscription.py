"""Subscriptions of members: local ones must be the same, and a remote one is compared without order and allocation."""

from __future__ import annotations

import pytest

from rmqclient.store.runtime.subscription import REMOTE, agree, fitted


@pytest.mark.parametrize(
    ("local", "remote"),
    [
        ("tags *; allocation averaged", "tags *"),
        ("tags a || b; ordered by queue; allocation circle", "tags a || b"),
        (
            "tags *; sql \"a = 'x; allocation y'\"; ordered by key; allocation averaged",
            "tags *; sql \"a = 'x; allocation y'\"",
        ),
        ("*", "*"),
    ],
)
def test_a_remote_member_agrees_with_local_ones_that_want_the_same_messages(local: str, remote: str) -> None:
    assert agree(local, remote + REMOTE) or local == remote
    assert agree(remote + REMOTE, local) or local == remote


@pytest.mark.parametrize(
    ("local", "remote"),
    [
        ("tags a; allocation averaged", "tags b"),
        ("tags a; allocation averaged", "tags *"),
        ("tags *; sql 'n > 1'; allocation averaged", "tags *"),
        ("tags *; allocation averaged", "tags *; sql 'n > 1'"),
        ("tags *; jmespath 'a'; allocation averaged", "tags *"),
    ],
)
def test_a_remote_member_that_wants_other_messages_agrees_with_nobody(local: str, remote: str) -> None:
    assert not agree(local, remote + REMOTE)


def test_local_members_must_be_the_same_in_everything() -> None:
    assert not agree("tags *; allocation averaged", "tags *; allocation circle")
    assert agree("tags *; allocation circle", "tags *; allocation circle")


def test_a_long_text_is_cut_and_still_differs() -> None:
    one, other = fitted("x" * 600 + "1"), fitted("x" * 600 + "2")
    assert (len(one), one != other) == (512, True)
