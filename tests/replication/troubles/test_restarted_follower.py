"""A follower that starts again while its primary is dead: what was known of the primary stays known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.errors import StoreUnusable
from rmqclient.replication import promotion
from rmqclient.replication.status import read_seen, write_seen
from rmqclient.store.settings.replica_mark import read_mark
from tests.replication.pairs import NO_BROKER, catch_up, fill, following, open_primary, open_replica, until

LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture
def primary(tmp_path: Path) -> str:
    """Where a primary was that has gone, 1,000 bytes of which its replica lacks."""
    copy = tmp_path / "replica"
    with open_primary(tmp_path / "primary") as (store, address):
        fill(store, 20)
        catch_up(copy, store, address)
        seen = read_seen(copy)
    write_seen(copy, replace(seen, contact_ms=LONG_AGO_MS, primary_end=seen.primary_end + 1_000))
    return address


def try_to_follow(copy: Path, address: str) -> None:
    """Let a follower start, find nobody, and end."""
    host, _, port = address.rpartition(":")
    with open_replica(copy, primary=address) as replica, following(replica, (host, int(port))):
        until(lambda: "refused" in read_seen(copy).problem, "the follower has written what it knows")


@pytest.mark.guarantee("G75")
def test_a_follower_that_starts_again_does_not_forget_what_is_missing(primary: str, tmp_path: Path) -> None:
    copy = tmp_path / "replica"
    before = promotion.status(copy)

    # When it starts again after the primary has died
    try_to_follow(copy, primary)

    # Then what is missing, and since when, is shown as before, and keeps the replica from being promoted
    found = promotion.status(copy)
    assert (found.missing_bytes, before.missing_bytes) == (1_000, 1_000)
    assert found.silent_s is not None
    assert found.silent_s > 1_000
    assert found.behind_s is not None
    with pytest.raises(StoreUnusable, match="the last 1000 bytes"):
        promotion.promote(copy)


def test_what_is_known_of_one_primary_is_not_said_of_another_one(primary: str, tmp_path: Path) -> None:
    copy = tmp_path / "replica"
    with open_replica(copy, primary="127.0.0.1:2"):
        mark = read_mark(copy)
    assert mark is not None
    assert (mark.primary, mark.broker) == ("127.0.0.1:2", NO_BROKER)
    assert promotion.status(copy).silent_s is None
    try_to_follow(copy, "127.0.0.1:2")
    with pytest.raises(StoreUnusable, match="never heard"):
        promotion.promote(copy)


def test_a_primary_that_has_lost_what_was_missing_leaves_no_missing_bytes(primary: str, tmp_path: Path) -> None:
    # Given a primary that came back without the bytes that its replica had heard of, and never got
    copy = tmp_path / "replica"
    host, _, port = primary.rpartition(":")
    with (
        open_primary(tmp_path / "primary", int(port)),
        open_replica(copy, primary=primary) as replica,
        following(replica, (host, int(port))),
    ):
        until(lambda: promotion.status(copy).missing_bytes == 0, "nothing is missing any more", 10)
    assert promotion.status(copy).primary_end == replica.state.published_to
