"""The page of dead letters reads thousands of them and keeps only those that it shows."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")

from rmqclient.codecs import encode_body
from rmqclient.dashboard.looking import letters
from rmqclient.failures.dead_letters import DeadLetter, Selection, select
from rmqclient.message import Message
from rmqclient.opening import open_backend
from rmqclient.store import open_store
from tests.support.stores import SMALL

SHOWN = 5


class Watched(DeadLetter):
    """A letter whose end is noticed."""

    __slots__ = ("__weakref__",)


def test_the_newest_letters_are_shown_and_no_others_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive = most = 0

    def gone() -> None:
        nonlocal alive
        alive -= 1

    def watched(*arguments: object) -> Iterator[DeadLetter]:
        nonlocal alive, most
        for letter in select(*arguments):  # type: ignore[arg-type]
            seen = Watched(letter.group, letter.message, letter.done)
            weakref.finalize(seen, gone)
            alive += 1
            most = max(most, alive)
            yield seen

    monkeypatch.setattr(letters, "select", watched)
    with open_store(tmp_path, SMALL) as store:
        appender = store.appender(lambda topic: store.topics.create(topic, 1), encode_body)
        for number in range(40):
            appender.append(Message("%DLQ%billing", b"%d" % number))
        found = letters.letters_of(open_backend(store), "billing", Selection(), "", SHOWN)
    assert [letter.message.body for letter in found.shown] == [b"39", b"38", b"37", b"36", b"35"]
    assert (found.matching, found.is_complete) == (40, True)
    assert most <= SHOWN + 3
