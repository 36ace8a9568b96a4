"""How groups stand, in words: which is behind, why, and when it has drained."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")

from rmqclient import Message, Producer, PullConsumer
from rmqclient.admin import Admin
from rmqclient.dashboard.looking.needs import Standing, headline, needs_of, standings
from rmqclient.metrics import Figures, marks_of
from rmqclient.store.history.rings import Row
from rmqclient.store.observe.reading import Reading
from tests.support.stores import SMALL


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "store"
    with Producer(root, config=SMALL) as producer:
        for number in range(90):
            producer.send(Message("orders", b"%d" % number))
        for group, done in (("mail", 0), ("billing", 10_000)):
            with PullConsumer(root, group=group) as consumer:
                for queue in consumer.queues("orders"):
                    consumer.commit(queue, min(done, consumer.max_offset(queue)))
        yield root


def test_a_paused_group_says_who_did_it_and_when_it_would_have_drained(store: Path) -> None:
    with Admin(store) as admin:
        admin.pause("mail", reason="SMTP is down", author="ada")
    with Reading(str(store)) as reading:
        seen = reading.observe()
        groups = standings(seen, figures(mail=Row(published=60, lag=90)), {}, 60)
        said = headline(seen, groups, marks_of(store), {"mail": 2.0})
        (need, *_) = needs_of(reading, seen, groups, reading.processes.look())
    assert said.title == "Behind in 1 of 2 groups"
    assert said.sentences[0].startswith("mail is paused by ada for ")
    assert said.sentences[0].endswith("90 wait; resumed, it would drain in 1 min at its best pace.")
    assert (need.title, need.resumes, need.waits) == ("mail", "mail", 90)


def test_how_long_is_not_said_of_a_group_that_never_had_to_catch_up(store: Path) -> None:
    with Admin(store) as admin:
        admin.pause("mail")
    with Reading(str(store)) as reading:
        seen = reading.observe()
        groups = standings(seen, figures(mail=Row(published=60, lag=90)), {}, 60)
    assert headline(seen, groups, marks_of(store), {"mail": 1.1}).sentences[0].endswith("90 wait.")


def test_a_store_that_keeps_up_says_so_and_how_many_dead_letters_wait(store: Path) -> None:
    with PullConsumer(store, group="mail") as consumer:
        for queue in consumer.queues("orders"):
            consumer.commit(queue, consumer.max_offset(queue))
    with Reading(str(store)) as reading:
        seen = reading.observe()
    said = headline(seen, standings(seen, {}, {"billing": 3}, 60), (), {})
    assert said == ("All 2 groups keep up", ["3 dead letters wait for a decision."])


def test_it_says_how_many_failed_messages_wait_for_a_retry_and_where_most_of_them(store: Path) -> None:
    with Reading(str(store)) as reading:
        seen = reading.observe()
    found = standings(seen, {}, {}, 60)
    waiting = {"mail": 1, "billing": 20}
    failing = [each._replace(group=each.group._replace(waiting=waiting[each.name])) for each in found]
    said = headline(seen, failing, (), {}).sentences[-1]
    assert (re.findall(r"\d+", said), "billing" in said, "mail" in said) == (["21"], True, False)


def test_what_delays_most_messages_stands_first(store: Path) -> None:
    with PullConsumer(store, group="billing") as consumer:
        for queue in consumer.queues("orders"):
            consumer.commit(queue, 0)
    with Reading(str(store)) as reading:
        seen = reading.observe()
        for busy, quiet in itertools.permutations(("mail", "billing")):
            known = figures(**{busy: Row(published=600, lag=90), quiet: Row(published=6, lag=90)})
            groups = standings(seen, known, {}, 60)
            assert [each.name for each in groups] == [busy, quiet]
            assert [each.title for each in needs_of(reading, seen, groups, reading.processes.look())][:2] == [
                busy,
                quiet,
            ]


def test_the_time_to_drain_is_the_lag_by_what_leaves_beyond_what_comes(store: Path) -> None:
    with Reading(str(store)) as reading:
        group = next(each for each in standings(reading.observe(), {}, {}, 60) if each.name == "mail").group
    for handled, drained_in_s in {120: 90.0, 60: None}.items():
        did = Figures("mail", 60, Row(published=60, handled=handled), 90)
        assert Standing(group._replace(state="running"), did, 0, 5.0).drained_in_s == drained_in_s
        assert Standing(group._replace(state="paused"), did, 0, 5.0).drained_in_s is None, "it stands"


def figures(**rows: Row) -> dict[str, Figures]:
    """Return what groups did in a minute."""
    return {name: Figures(name, 60, row, row.lag) for name, row in rows.items()}
