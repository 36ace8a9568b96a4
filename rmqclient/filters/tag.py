"""Tag filter: ``"paid || refunded"`` takes messages with one of these tags, ``"*"`` takes every message.

A consume queue entry holds only the Java hash of the tag, so selection has two steps, as in RocketMQ
(SubscriptionData, FilterAPI.buildSubscriptionData): first the hash in the entry, which lets another tag with the same
hash through, then the tag itself in the record.

Two differences are deliberate. RocketMQ skips an empty alternative, and takes ``*`` among other tags for a tag of that
name. Here both are errors, because the handler would see more or fewer messages than its author meant.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqclient.store import java_hash
from rmqclient.store.texts import is_utf8

EVERYTHING = "*"
MAX_EXPRESSION_CHARACTERS = 4_096

_SEPARATOR = "||"
_BLANKS = "".join(map(chr, range(0x21)))  # what Java's String.trim removes
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class TagFilter:
    """A parsed expression, made by :func:`parse_tags`. Equal filters take the same messages."""

    tags: frozenset[str]
    """The tags; empty means every message."""

    expression: str = field(init=False)
    """Normalised: the tags once each, sorted, ``a || b``; ``*`` for every message."""

    tags_codes: tuple[int, ...] = field(init=False)
    """Java hashes of the tags, signed, 32 bits, ascending, once each."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", f" {_SEPARATOR} ".join(sorted(self.tags)) or EVERYTHING)
        object.__setattr__(self, "tags_codes", tuple(sorted({java_hash(tag) for tag in self.tags})))

    def matches(self, tag: str | None) -> bool:
        """Return whether a message with this tag matches; None means no tag. Compares text, not hashes."""
        return not self.tags or tag in self.tags


def parse_tags(expression: str | None) -> TagFilter:
    """Parse ``expression``; None, blanks and ``*`` take every message.

    Raises ValueError for an empty alternative, ``*`` among other tags, text that cannot be a tag, and more than 4,096
    characters.
    """
    text = "" if expression is None else _checked(expression).strip(_BLANKS)
    if text in ("", EVERYTHING):
        return TagFilter(frozenset())
    tags = [alternative.strip(_BLANKS) for alternative in text.split(_SEPARATOR)]
    if "" in tags:
        raise ValueError(f"tags {_shown(text)}: alternative {tags.index('') + 1} of {len(tags)} is empty; remove a ||")
    if EVERYTHING in tags:
        raise ValueError(f"tags {_shown(text)}: * already takes every message; remove it or the other tags")
    return TagFilter(frozenset(tags))


def _checked(expression: object) -> str:
    if not isinstance(expression, str):
        raise ValueError(f"tags {_shown(expression)}: an expression is a str, not {type(expression).__name__}")  # noqa: TRY004 - one kind of error for every bad expression
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        raise ValueError(
            f"tags {_shown(expression)}: {len(expression):,} characters; at most {MAX_EXPRESSION_CHARACTERS:,}"
        )
    if "\x01" in expression or "\x02" in expression:
        raise ValueError(f"tags {_shown(expression)}: no tag contains the separators of properties, \\x01 and \\x02")
    if not is_utf8(expression):
        raise ValueError(f"tags {_shown(expression)}: half of a surrogate pair is not text")
    return expression


def _shown(expression: object) -> str:
    text = repr(expression)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
