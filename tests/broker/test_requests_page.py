"""The page of tools lists the requests that the server answers, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from rmqclient.broker.broker import Broker
from rmqclient.broker.settings import ServeSettings
from rmqclient.store import open_store

PAGE = Path(__file__).parents[2] / "docs" / "serve" / "tools.md"
SUBJECTS = ("name server", "sending", "pulls and queries", "groups", "administration")


def test_the_page_lists_what_is_answered(tmp_path: Path) -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| ([0-9, to]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {code for subject, codes in rows if subject in SUBJECTS for code in numbers(codes)}
    with open_store(tmp_path / "store") as store:
        broker = Broker(store, ServeSettings(tmp_path / "store"))
        answered = set(broker.routes())
        broker.close()
    assert listed == answered


def numbers(text: str) -> set[int]:
    """Return the codes of ``3, 5 to 7``."""
    found: set[int] = set()
    for part in text.split(", "):
        first, _, last = part.partition(" to ")
        found |= set(range(int(first), int(last or first) + 1))
    return found
