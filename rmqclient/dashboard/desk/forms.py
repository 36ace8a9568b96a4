"""Forms: what a person asked for, by filters in the URL and by actions that were posted."""

from __future__ import annotations

import datetime
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from rmqclient.admin import Position
from rmqclient.dashboard.desk.desk import desk_of
from rmqclient.dashboard.looking.past import RANGES
from rmqclient.duration import moment_in

LONGEST_FORM = 1 << 20
"""Bytes."""

_ENDS: Mapping[str, Position] = {"earliest": "earliest", "latest": "latest"}


class Form:
    """The fields of a form, each with all its values."""

    def __init__(self, body: bytes) -> None:
        self._fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)

    def one(self, name: str, default: str = "") -> str:
        """Return the last value of a field."""
        return next((value for key, value in reversed(self._fields) if key == name), default).strip()

    def has(self, name: str) -> bool:
        """Tell whether a field was there."""
        return any(key == name for key, _ in self._fields)

    def all(self, name: str) -> list[str]:
        """Return every value of a field."""
        return [value for key, value in self._fields if key == name]


class WrongInput(ValueError):
    """What a person wrote is not understood; the text says what to write."""


def action(run: Callable[[Request, Form], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of an action. It refuses everything unless actions are allowed and the form is from here."""

    async def endpoint(request: Request) -> Response:
        if not desk_of(request).allow_actions:
            raise HTTPException(403, "This dashboard only shows: start it with --allow-actions to change something.")
        form = Form(await _body(request))
        if not hmac.compare_digest(form.one("form_token").encode(), request.state.form_token.encode()):
            raise HTTPException(
                403, "This form is not from this dashboard, or from before its restart: go back and reload."
            )
        return await run_in_threadpool(run, request, form)

    return endpoint


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_FORM:
            raise HTTPException(413, f"A form has at most {LONGEST_FORM:,} bytes.")
    return bytes(body)


def asked(request: Request, name: str) -> str:
    """Return a filter of the URL, empty without it."""
    return str(request.query_params.get(name, "")).strip()


def asked_number(request: Request, name: str, default: int, most: int) -> int:
    """Return a number of the URL. Raises WrongInput unless it is 1 to ``most``."""
    text = asked(request, name)
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= most:
        raise WrongInput(f"{name} {text!r}: give a number from 1 to {most:,}")
    return int(text)


def asked_range(request: Request) -> str:
    """Return the name of a range of time, ten minutes without one. Raises WrongInput for what is none."""
    name = asked(request, "range") or "10m"
    if name not in RANGES:
        raise WrongInput(f"range {name!r}: give {', '.join(RANGES)}")
    return name


def moment(text: str) -> int | None:
    """Return a time in ms since 1970, as :func:`moment_in` reads it; None without text. Raises WrongInput."""
    try:
        return moment_in(text) if text else None
    except ValueError as error:
        raise WrongInput(str(error)) from error


def position(text: str) -> Position:
    """Return where a group shall go on: ``earliest``, ``latest``, a queue offset or a time. Raises WrongInput."""
    if text in _ENDS:
        return _ENDS[text]
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    found = moment(text)
    if found is None:
        raise WrongInput("where to? Write earliest, latest, a queue offset, 2h for two hours ago, or 2026-01-31T12:00")
    return datetime.datetime.fromtimestamp(found / 1000, datetime.UTC)


def written(place: Position) -> str:
    """Return a place as :func:`position` reads it: a time as that time, whenever it is read."""
    return place.isoformat() if isinstance(place, datetime.datetime) else str(place)
