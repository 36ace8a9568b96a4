"""Search everywhere: one field for messages, groups, topics, workers and dead letters, and the answer in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rmqclient.admin.export import exported
from rmqclient.admin.life import life_of
from rmqclient.backend import Backend
from rmqclient.dashboard.desk.desk import Desk, desk_of
from rmqclient.dashboard.desk.forms import WrongInput, asked, asked_number, moment
from rmqclient.dashboard.looking.answers import TONES, Answer, answers_of
from rmqclient.dashboard.looking.bodies import brief
from rmqclient.dashboard.looking.issues import Known
from rmqclient.dashboard.looking.query import CHIPS, Query
from rmqclient.dashboard.looking.search import SLICE_S, Below, Found, Search, WrongQuery, search
from rmqclient.errors import UnknownTopic
from rmqclient.failures.dead_letters import Selection
from rmqclient.message import ReceivedMessage
from rmqclient.store.errors import StoreBusy, StoreFull
from rmqclient.store.observe.summary import Group

_MOST = 500
_END = 1 << 62
_FILE_S = 5.0
"""How long a file looks at messages."""
_ANSWERED = 3
"""Messages whose answer stands beside them."""


class _Name(NamedTuple):
    """Something with a page of its own."""

    kind: str
    """``groups``, ``topics`` or ``workers``, as in the address of its page."""
    name: str
    path: tuple[object, ...]


def show(request: Request) -> Response:
    """Answer a search, all of which is in the URL; ``?format=jsonl`` answers with a file for `rmq send`."""
    desk = desk_of(request)
    desk.live.begin()
    backend = desk.backend()
    query, wrong, is_file = _query(request), "", asked(request, "format") == "jsonl"
    found, wanted = Found([], 0, None), Search()
    try:
        wanted = _wanted(query, asked_number(request, "limit", 50, _MOST), asked(request, "below"))
        wanted = replace(wanted, longest_s=_FILE_S if is_file else SLICE_S)
        found = search(backend, wanted)
    except (WrongInput, WrongQuery, UnknownTopic) as error:
        wrong = str(error)
    if is_file and not wrong:
        return _file(found.messages)
    is_first = wanted.below is None
    groups = backend.groups.all() if is_first else []
    return desk.page(
        request,
        "search/all.html",
        query=query,
        asked_for=str(query),
        is_asked=bool(query.words or query.chips),
        found=found,
        looked_at=asked_number(request, "looked", 0, _END) + found.looked_at,
        next=_next(query, wanted, found),
        goes_on=not found.messages and not asked(request, "stop"),
        rows=[(message, brief(message)) for message in found.messages],
        answers=_answers(backend, found, query, groups) if is_first and (wanted.keys or wanted.message_id) else [],
        names=_names(desk, backend, query, groups) if is_first else [],
        issues=_issues(desk, backend, query) if is_first and not wrong else [],
        tones=TONES,
        wrong=wrong,
    )


def _query(request: Request) -> Query:
    """Return what was asked; the parts of older addresses, such as ``?topic=orders``, are chips."""
    query = Query.of(asked(request, "q"))
    return Query({**query.chips, **{name: value for name in CHIPS if (value := asked(request, name))}}, query.words)


def _wanted(query: Query, limit: int, below: str) -> Search:
    chips = query.chips
    keys = (chips["key"],) if "key" in chips else query.words
    if not keys and not chips.keys() - {"group", "error", "since", "until"} and chips.keys() & {"group", "error"}:
        return Search()  # dead letters alone
    return Search(
        topic=chips.get("topic", ""),
        message_id=chips.get("id", ""),
        keys=keys,
        tag=chips.get("tag", ""),
        place=_place(chips.get("place", ""), chips.get("topic", "")),
        since_ms=moment(chips.get("since", "")),
        until_ms=moment(chips.get("until", "")),
        where=chips.get("where", ""),
        below=_below(below),
        limit=limit,
    )


def _place(text: str, topic: str) -> tuple[int, int] | None:
    if not text:
        return None
    found = re.fullmatch(r"([0-9]{1,5}):([0-9]{1,18})", text)
    if found is None:
        raise WrongInput(f"place {text!r}: write queue:offset, such as 2:7731")
    if not topic:
        raise WrongInput(f"place {text!r}: of which topic? Write topic:orders, too")
    return int(found[1]), int(found[2])


def _below(text: str) -> Below | None:
    if not text:
        return None
    found = re.fullmatch(r"([0-9]{1,19}):([0-9]{1,9}):([0-9]{1,19}):(.+)", text)
    if found is None:
        raise WrongInput(f"below {text!r}: follow the link of a page, which has the place where it goes on")
    return Below(int(found[1]), found[4], int(found[2]), int(found[3]))


def _next(query: Query, wanted: Search, found: Found) -> dict[str, str]:
    """Return what the next page asks for; nothing if there is none."""
    last = found.last
    if last is None:
        return {}
    if wanted.place is not None:
        return {"q": str(Query({**query.chips, "place": f"{last.queue_id}:{last.queue_offset + 1}"}, query.words))}
    below = f"{last.store_timestamp}:{last.queue_id}:{last.queue_offset}:{last.topic}"
    return {"q": str(query), "below": below}


def _answers(
    backend: Backend, found: Found, query: Query, groups: Sequence[Group]
) -> list[tuple[ReceivedMessage, list[Answer] | str]]:
    """Return how the groups stand with the first messages, or why that cannot be read."""
    answered: list[tuple[ReceivedMessage, list[Answer] | str]] = []
    for message in found.messages[:_ANSWERED]:
        try:
            answers = answers_of(life_of(backend, message, groups), groups)
            wanted = query.chips.get("group", "")
            answered.append((message, [each for each in answers if wanted in ("", each.group)]))
        except (StoreBusy, StoreFull) as error:
            answered.append((message, str(error)))
    return answered


def _names(desk: Desk, backend: Backend, query: Query, groups: Sequence[Group]) -> list[_Name]:
    """Return what has all the words in its name, or is named by a chip."""
    with desk.reading() as reading:
        workers = reading.workers()
    rows = [
        *(_Name("groups", each.group, ("groups", each.group)) for each in groups),
        *(_Name("topics", name, ("topics", name)) for name in backend.topics.names()),
        *(_Name("workers", each.name or f"worker {each.pid}", ("workers", each.pid)) for each in workers),
    ]
    chips = {("groups", query.chips.get("group")), ("topics", query.chips.get("topic"))}
    words = [word.lower() for word in query.words]
    return [
        row
        for row in rows
        if (row.kind, row.name) in chips or (words and all(word in row.name.lower() for word in words))
    ]


def _issues(desk: Desk, backend: Backend, query: Query) -> list[Known]:
    """Return the issues whose exception, text or place has the error or the words; or all of a group."""
    error = query.chips.get("error") or " ".join(query.words)
    if (not error and "group" not in query.chips) or query.chips.keys() & {"key", "id", "place"}:
        return []
    desk.issues.read(backend)
    period = Selection(since_ms=moment(query.chips.get("since", "")), until_ms=moment(query.chips.get("until", "")))
    return desk.issues.known(period, query.chips.get("group", ""), error)


def _file(messages: list[ReceivedMessage]) -> Response:
    lines = [orjson.dumps(exported(each)) for each in messages]
    headers = {"Content-Disposition": 'attachment; filename="messages.jsonl"'}
    return Response(b"\n".join([*lines, b""]), media_type="application/x-ndjson", headers=headers)


ROUTES = [Route("/search", show), Route("/messages", show)]
