"""The page of dead letters keeps only those that it shows, and without a filter it reads no others."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")

from rmqclient.backend import Backend
from rmqclient.codecs import encode_body
from rmqclient.dashboard.looking import letters
from rmqclient.dashboard.looking.letters import Letters
from rmqclient.failures import dead_letters
from rmqclient.failures.dead_letters import DeadLetter, Selection, newest
from rmqclient.local.backend import _Queues
from rmqclient.message import Message
from rmqclient.opening import open_backend
from rmqclient.store import MessageStore, open_store
from tests.support.stores import SMALL

SHOWN = 5
EVERY = 200
CHUNK = 32
"""Letters that are read at once."""


class Watched(DeadLetter):
    """A letter whose end is noticed."""

    __slots__ = ("__weakref__",)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with dead letters of one group, numbered in their bodies; every second one has the key ``even``."""
    with open_store(tmp_path, SMALL) as store:
        appender = store.appenders.make(lambda topic: store.topics.create(topic, 1), encode_body)
        for number in range(EVERY):
            appender.append(Message("%DLQ%billing", b"%d" % number, keys=[("even", "odd")[number % 2]]))
        yield store


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each read of a queue has brought."""
    counts: list[int] = []
    plain = _Queues.read

    def counting(*arguments: object) -> object:
        result = plain(*arguments)  # type: ignore[arg-type]
        counts.append(len(result.messages))
        return result

    monkeypatch.setattr(_Queues, "read", counting)
    return counts


def page(backend: Backend, selection: Selection) -> Letters:
    (of,) = dead_letters.groups(backend)
    return letters.letters_of(backend, of, selection, "", SHOWN)


def bodies(found: Letters) -> list[int]:
    return [int(letter.message.body) for letter in found.shown]


def test_without_a_filter_no_more_letters_are_read_than_shown(store: MessageStore, read: list[int]) -> None:
    found = page(open_backend(store), Selection())
    assert bodies(found) == [199, 198, 197, 196, 195]
    assert (found.matching, found.is_complete, found.read) == (EVERY, True, SHOWN)
    assert found.by_error == [("", SHOWN)]
    assert read == [CHUNK]


def test_with_a_filter_every_letter_is_read_and_only_those_that_are_shown_are_kept(
    store: MessageStore, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = most = 0

    def gone() -> None:
        nonlocal alive
        alive -= 1

    def watched(*arguments: object, done: bool) -> Iterator[DeadLetter]:
        nonlocal alive, most
        for letter in newest(*arguments, done=done):  # type: ignore[arg-type]
            seen = Watched(letter.group, letter.message, letter.done)
            weakref.finalize(seen, gone)
            alive += 1
            most = max(most, alive)
            yield seen

    monkeypatch.setattr(letters, "newest", watched)
    found = page(open_backend(store), Selection(key="even"))
    assert bodies(found) == [198, 196, 194, 192, 190]
    assert (found.matching, found.is_complete, found.read) == (EVERY // 2, True, None)
    assert found.by_error == [("", EVERY)]
    assert sum(read) == EVERY
    assert most <= SHOWN + 3


def test_a_filter_looks_at_the_newest_letters_of_too_many(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "READ_AT_MOST", 50)
    found = page(open_backend(store), Selection(key="even"))
    assert bodies(found) == [198, 196, 194, 192, 190]
    assert (found.matching, found.is_complete, found.read) == (25, False, 50)


def test_what_was_settled_is_counted_without_reading_and_passed_over(store: MessageStore, read: list[int]) -> None:
    backend = open_backend(store)
    assert len([*dead_letters.purge(backend, "billing", Selection(key="odd"), limit=3)]) == 3
    assert sum(read) == CHUNK, "a limit that is reached ends the reading"
    read.clear()
    assert [(each.waiting, each.replayed, each.purged) for each in dead_letters.groups(backend)] == [(EVERY - 3, 0, 3)]
    assert read == []
    waiting = [int(letter.message.body) for letter in newest(backend, "billing")]
    assert waiting == [number for number in reversed(range(EVERY)) if number not in (1, 3, 5)]
    assert page(backend, Selection(done=True)).matching == EVERY


def test_a_letter_that_got_the_place_of_a_settled_one_is_counted_once(store: MessageStore) -> None:
    backend = open_backend(store)
    (letter,) = dead_letters.purge(backend, "billing", Selection(), limit=1)
    journal = backend.directory / "config" / "deadLetters.jsonl"
    line = journal.read_text()
    journal.write_text(line.replace(letter.message.message_id, "0" * 32) + line)
    assert [(each.waiting, each.purged) for each in dead_letters.groups(backend)] == [(EVERY - 1, 1)]
