"""Page: the table of requests as Markdown. ``python -m rmqclient.remoting.page`` prints ``docs/remoting.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.declarations.declaration import COMMON, Direction, Request
from rmqclient.remoting.declarations.fields import TYPES, Field, fields_of
from rmqclient.remoting.errors import ERRORS
from rmqclient.remoting.table import SECTIONS

_TOP = """\
# Requests of the protocol

`python -m rmqclient.remoting.page` prints this page from `remoting/declarations/`. Headers are written, read and
checked by the same declarations. `remoting/frame.py` shows the bytes around them.

`e`=`queueId`! i is a field with its short name, which then stands on the wire, its name, a mark, and the letter of its
type. **!** marks a field that the receiver needs. The types are {letters}.
All values are text on the wire. A receiver ignores fields that it does not know. Newer Java clients may add these to
any request: {common}.

A body is described in words; an empty cell stands for none. A request to a client comes from a broker.
"""

_DIRECTIONS = {
    Direction.TO_NAME_SERVER: "name server",
    Direction.TO_BROKER: "broker",
    Direction.TO_CLIENT: "client",
}


def page() -> str:
    """Return the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    letters = ", ".join(f"**{kind.letter}** {kind.name}" for kind in TYPES.values())
    yield _TOP.format(letters=letters, common=_shown(fields_of(COMMON)))
    for title, requests in SECTIONS.items():
        yield from (f"## {title}", "")
        yield "| code | name | to a | fields | body | fields of the answer | body of the answer | note |"
        yield "| ---: | --- | --- | --- | --- | --- | --- | --- |"
        yield from (_row(request) for request in requests)
        yield ""
    yield from ("## Codes of answers", "", "| code | name | raises |", "| ---: | --- | --- |")
    for code in ResponseCode:
        raised = ERRORS.get(code)
        yield f"| {code.value} | {code.name} | {f'`{raised.__name__}`' if raised else ''} |"
    yield ""
    yield "Any other code than 0 raises `AnswerError` at least. A caller may name codes that it takes for an answer."


def _row(request: Request) -> str:
    cells = (
        str(request.code.value),
        request.code.name,
        _DIRECTIONS[request.direction],
        _shown(request.own.fields),
        request.body,
        _shown(request.answer.fields),
        request.answer_body,
        request.note,
    )
    return f"| {' | '.join(cells)} |"


def _shown(fields: tuple[Field, ...]) -> str:
    return ", ".join(_field(field) for field in fields)


def _field(field: Field) -> str:
    short = "" if field.wire_name == field.name else f"`{field.wire_name}`="
    return f"{short}`{field.name}`{'!' if field.is_required else ''} {field.type.letter}"


if __name__ == "__main__":
    sys.stdout.write(page())
