"""Bodies: what a person sees of the bytes of a message. Everything here is text, whatever stands in it."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from rmqclient.admin.export import opened
from rmqclient.message import ReceivedMessage

SHOWN_BYTES = 64 * 1024
_BRIEF_CHARACTERS = 160
_HEX_BYTES = 4 * 1024


@dataclass(frozen=True, slots=True)
class Body:
    """A body in the forms that it has."""

    size: int
    """Bytes, opened."""
    stored_size: int
    text: str | None
    """None unless it is UTF-8."""
    json: str | None
    """The same, indented; None unless it is JSON."""
    copied: str | None
    """Base64 of the text as it is in the message: HTML would not carry each character, such as NUL. None if it is cut:
    what is copied is the whole body, or nothing."""
    hex: str
    is_cut: bool
    problem: str | None
    """Why it could not be opened; the other fields tell of the stored bytes then."""


def body_of(message: ReceivedMessage) -> Body:
    """Return the body of a message, 64 KiB of it at most. A compressed one is opened under the limit of the store."""
    body, problem = opened(message)
    shown = body[:SHOWN_BYTES]
    is_cut = len(body) > SHOWN_BYTES
    text = _as_text(shown, is_cut=is_cut)
    return Body(
        size=len(body),
        stored_size=len(message.stored_body),
        text=None if text is None else visible(text),
        json=None if text is None or is_cut else _as_json(text),
        copied=None if text is None or is_cut else base64.b64encode(text.encode()).decode(),
        hex=_as_hex(shown[:_HEX_BYTES]),
        is_cut=is_cut,
        problem=problem,
    )


def brief(message: ReceivedMessage) -> str:
    """Return the begin of a body on one line."""
    body, problem = opened(message)
    if problem is not None:
        return f"<{problem}>"
    text = visible(" ".join(body[: 4 * _BRIEF_CHARACTERS].decode("utf-8", "backslashreplace").split()))
    return text if len(text) <= _BRIEF_CHARACTERS else text[: _BRIEF_CHARACTERS - 1] + "…"


def newline_of(body: bytes) -> str | None:
    """Return how the lines of a text end, LF if it has one line; None for what is no text, or mixes them."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return None
    rest = text.replace("\r\n", "")
    if "\r\n" in text:
        return None if "\n" in rest or "\r" in rest else "\r\n"
    return None if "\r" in rest else "\n"


def editable(body: bytes) -> str | None:
    """Return a body as a text that a field of a form gives back as it was; None if none would.

    A field has no NUL, and tells no line ends apart.
    """
    is_text = len(body) <= SHOWN_BYTES and b"\0" not in body and newline_of(body) is not None
    return body.decode("utf-8") if is_text else None


def visible(text: str) -> str:
    """Return a text whose control and direction characters are escapes: nothing beside it is hidden."""
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode() for each in text
    )


def _as_text(body: bytes, *, is_cut: bool) -> str | None:
    for left in range(4 if is_cut else 1):  # a cut may go through a character
        try:
            return body[: len(body) - left].decode("utf-8")
        except UnicodeDecodeError:
            continue
    return None


def _as_json(text: str) -> str | None:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return visible(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None


def _as_hex(body: bytes) -> str:
    lines = []
    for at in range(0, len(body), 16):
        row = body[at : at + 16]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        lines.append(f"{at:06x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {text}")
    return "\n".join(lines)
