"""The dead letters of a store by issue: each is read once, none is out of reach, a page reads only what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")

from rmqclient.backend import Backend
from rmqclient.codecs import encode_body
from rmqclient.dashboard.looking import issues
from rmqclient.dashboard.looking.issues import At, Issues
from rmqclient.failures import dead_letters
from rmqclient.failures.dead_letters import Issue, Selection, newest
from rmqclient.failures.failure import Failure, with_failures
from rmqclient.local.backend import _Queues
from rmqclient.message import Message
from rmqclient.opening import open_backend
from rmqclient.store import MessageStore, open_store
from tests.support.stores import SMALL
from tests.support.written import overwrite

SHOWN = 5
EVERY = 200
CHUNK = 32
"""Dead letters that are read at once."""
TRACE = """  File "/srv/app/{file}.py", line {line}, in charge
    post()
  File "/srv/.venv/lib/python3.11/site-packages/requests/adapters.py", line 713, in send
    raise ReadTimeout
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with dead letters of one group, numbered in their bodies; every second one has the key ``even``.

    They failed in two places: the even ones in one, whose line moved meanwhile, the odd ones in the other.
    """
    with open_store(tmp_path, SMALL) as store:
        appender = store.appenders.make(lambda topic: store.topics.create(topic, 1), encode_body)
        for number in range(EVERY):
            trace = TRACE.format(file=("cards", "banks")[number % 2], line=number)
            failure = Failure(attempt=1, error="Timeout", text=f"no answer {number}", worker="w", trace=trace)
            appender.append(
                Message(
                    "%DLQ%billing",
                    b"%d" % number,
                    keys=[("even", "odd")[number % 2]],
                    properties=with_failures({}, [failure]),
                )
            )
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


def pages(backend: Backend, wanted: Selection, known: Issues) -> Iterator[list[int]]:
    """Yield the numbers of each page, following its link to the next one."""
    before: At | None = None
    while True:
        page = known.page(backend, ["billing"], wanted, before, SHOWN)
        yield [int(letter.message.body) for letter in page.shown]
        before = page.next
        if before is None:
            return


CARDS = Issue("Timeout", "app/cards.py in charge")


def test_issues_are_told_apart_by_the_innermost_frame_of_the_application_whatever_its_line(store: MessageStore) -> None:
    backend, known = open_backend(store), Issues()
    assert known.read(backend) == 0
    found = known.known(Selection())
    assert {(each.issue, each.letters) for each in found} == {
        (CARDS, EVERY // 2),
        (Issue("Timeout", "app/banks.py in charge"), EVERY // 2),
    }
    assert {each.text for each in found} == {"no answer 198", "no answer 199"}, "the text of the last failure"
    assert all(sum(each.bins) == each.letters for each in found)


def test_each_dead_letter_is_read_once(store: MessageStore, read: list[int]) -> None:
    backend, known = open_backend(store), Issues()
    known.read(backend)
    assert sum(read) == EVERY
    read.clear()
    known.read(backend)
    assert read == []


def test_those_that_cannot_be_read_are_counted_until_they_are_put_aside(store: MessageStore) -> None:
    # Given one whose record is damaged, in a log whose older part is not read yet
    backend, known = open_backend(store), Issues()
    at = next(newest(backend, "billing")).message.commit_log_offset
    path = sorted((store.root / "commitlog").iterdir())[at // SMALL.commit_log_file_bytes]
    overwrite(path, at - int(path.name) + 90, b"?")
    # Then it is counted, and an unread one is not
    assert known.read(backend) == 0
    assert known.damaged(["billing"]) == 1
    assert known.damaged(["another"]) == 0
    assert sum(each.letters for each in known.known(Selection())) == EVERY - 1
    # And no longer when it was put aside
    assert dead_letters.put_damaged_aside(backend, "billing") == 1
    known.read(backend)
    assert known.damaged(["billing"]) == 0


def test_no_dead_letter_is_out_of_reach(store: MessageStore) -> None:
    backend, known = open_backend(store), Issues()
    known.read(backend)
    found = list(pages(backend, Selection(), known))
    assert [number for page in found for number in page] == [*reversed(range(EVERY))]
    assert max(map(len, found)) == SHOWN
    of_issue = pages(backend, Selection(issue=CARDS), known)
    assert [number for page in of_issue for number in page] == [*reversed(range(0, EVERY, 2))]


def test_a_page_reads_what_it_shows_and_no_more(store: MessageStore, read: list[int]) -> None:
    backend, known = open_backend(store), Issues()
    known.read(backend)
    read.clear()
    assert len(next(pages(backend, Selection(issue=CARDS), known))) == SHOWN
    assert sum(read) == SHOWN


def test_a_search_in_texts_stops_at_a_limit_and_says_where_it_goes_on(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issues, "READ_AT_MOST", 50)
    backend, known = open_backend(store), Issues()
    known.read(backend)
    found = list(pages(backend, Selection(error="no answer 17"), known))
    assert [number for page in found for number in page] == [*reversed(range(170, 180)), 17]
    assert len(found) == 6, "50 were looked at for each page, and 5 for the first two"


def test_what_there_is_no_time_for_is_counted_and_read_by_the_next(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issues, "_READ_S", 0.0)
    backend, known = open_backend(store), Issues()
    assert 0 < known.read(backend) <= EVERY
    monkeypatch.setattr(issues, "_READ_S", 60.0)
    assert known.read(backend) == 0
    assert sum(each.letters for each in known.known(Selection())) == EVERY


def test_one_that_was_settled_is_in_no_issue(store: MessageStore) -> None:
    backend, known = open_backend(store), Issues()
    list(dead_letters.purge(backend, "billing", Selection(issue=CARDS)))
    known.read(backend)
    assert [each.issue.place for each in known.known(Selection())] == ["app/banks.py in charge"]
    assert sum(each.letters for each in known.known(Selection(done=True))) == EVERY


def test_what_was_settled_is_counted_without_reading_and_passed_over(store: MessageStore, read: list[int]) -> None:
    backend = open_backend(store)
    assert len([*dead_letters.purge(backend, "billing", Selection(key="odd"), limit=3)]) == 3
    assert sum(read) == CHUNK, "a limit that is reached ends the reading"
    read.clear()
    assert [(each.waiting, each.replayed, each.purged) for each in dead_letters.groups(backend)] == [(EVERY - 3, 0, 3)]
    assert read == []
    waiting = [int(letter.message.body) for letter in newest(backend, "billing")]
    assert waiting == [number for number in reversed(range(EVERY)) if number not in (1, 3, 5)]


def test_a_letter_that_got_the_place_of_a_settled_one_is_counted_once(store: MessageStore) -> None:
    backend = open_backend(store)
    (letter,) = dead_letters.purge(backend, "billing", Selection(), limit=1)
    journal = backend.directory / "config" / "deadLetters.jsonl"
    line = journal.read_text()
    journal.write_text(line.replace(letter.message.message_id, "0" * 32) + line)
    assert [(each.waiting, each.purged) for each in dead_letters.groups(backend)] == [(EVERY - 1, 1)]


def test_the_four_most_frequent_exceptions_have_a_name_of_their_own_and_the_others_are_added() -> None:
    rows = [
        issues.Known("billing", Issue(error, place), "", number, 0, 1, (number, 0))
        for error, place, number in [
            *((name, "a.py:f", 9 - at) for at, name in enumerate("ABCDEF")),
            ("F", "b.py:g", 9),
        ]
    ]
    assert [(each.error, each.bins) for each in issues.by_exception(rows)] == [
        ("F", (13, 0)),
        ("A", (9, 0)),
        ("B", (8, 0)),
        ("C", (7, 0)),
        ("others", (11, 0)),
    ]
    assert issues.by_exception([]) == []


def test_all_issues_of_a_page_are_counted_in_the_parts_of_one_period(store: MessageStore) -> None:
    known = Issues()
    known.read(open_backend(store))
    found = known.known(Selection())
    assert [sum(each.bins) for each in found] == [EVERY // 2, EVERY // 2]
    assert sum(sum(each.bins) for each in known.known(Selection(since_ms=1))) == EVERY
    assert all(each.bins[-1] == each.letters for each in known.known(Selection(since_ms=1)))
