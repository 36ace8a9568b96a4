"""Query: what a person writes into the search, as chips and plain words: ``key:A-17 topic:orders since:1h Timeout``.

The value of a chip with a space is in quotation marks, in which a backslash stands before another one and before them.
``where:`` is the last one: all that follows is its expression.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CHIPS = ("key", "id", "topic", "group", "error", "tag", "place", "since", "until", "where")

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PART = re.compile(rf"(?:(?P<chip>{'|'.join(CHIPS[:-1])}):)?(?P<text>{_QUOTED}|\S+)")
_WHERE = re.compile(r"(?:^|(?<=\s))where:")


@dataclass(frozen=True, slots=True)
class Query:
    """The parts of a search."""

    chips: dict[str, str]
    """By their names; of two with one name the last counts."""
    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Query:
        """Return the query in a text; every text is one."""
        chips: dict[str, str] = {}
        words: list[str] = []
        begin = _WHERE.search(text)
        for part in _PART.finditer(text[: begin.start()] if begin else text):
            if part["chip"]:
                chips[part["chip"]] = _opened(part["text"])
            else:
                words.append(_opened(part["text"]))
        if begin and (where := text[begin.end() :].strip()):
            chips["where"] = where
        return cls(chips, tuple(words))

    def without(self, chip: str) -> Query:
        """Return the query with one chip less."""
        return Query({name: value for name, value in self.chips.items() if name != chip}, self.words)

    def __str__(self) -> str:
        """Return the text that this query is read from."""
        parts = [*map(_closed, self.words)]
        parts += [f"{name}:{_closed(self.chips[name])}" for name in CHIPS[:-1] if self.chips.get(name)]
        return " ".join([*parts, *([f"where:{self.chips['where']}"] if self.chips.get("where") else [])])


def _opened(text: str) -> str:
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def _closed(text: str) -> str:
    if text and not re.search(r'[\s"\\]', text) and not _PART.match(text)["chip"] and not _WHERE.match(text):  # type: ignore[index] # every text that is not blank matches
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
