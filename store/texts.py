"""Texts: which ones UTF-8 can hold. Half of a surrogate pair, which Python takes for a character, cannot be stored."""

from __future__ import annotations


def is_utf8(text: str) -> bool:
    """Whether UTF-8 can hold a text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
