"""Application: the dashboard as an ASGI application, which page answers which path, and what an error looks like."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from rmqclient.dashboard.desk.assets import Assets
from rmqclient.dashboard.desk.desk import Desk, desk_of
from rmqclient.dashboard.desk.forms import WrongInput, asked, asked_range
from rmqclient.dashboard.desk.live import TooManyClients
from rmqclient.dashboard.gate import LOOPBACK, Gate
from rmqclient.dashboard.looking.past import told
from rmqclient.dashboard.pages import (
    dead_letters,
    events,
    groups,
    messages,
    overview,
    search,
    topics,
    waiting,
    workers,
)
from rmqclient.errors import InvalidName, QueueError, UnknownGroup, UnknownTopic
from rmqclient.opening import MessageStore
from rmqclient.schedules.cron import Cron
from rmqclient.store.observe.shared_file import Unreadable
from rmqclient.store.threads.logs import Log

_log = Log("rmqclient.dashboard")
_MISSING = (UnknownTopic, UnknownGroup)


class Dashboard:
    """A store in a browser, as an ASGI application. Nothing is opened before the first request.

    ``place`` is the directory of a store of this host, or an open store. Without ``allow_actions`` nothing can be
    changed. ``token`` lets a client in; None makes one, which stands in :attr:`token` and in the log. With ``guarded``
    the application around it decides who may see it; an application of several processes gives a token then, too,
    because the forms of one are posted to another. ``hosts`` are the names that clients may use, with or without a
    port. ``author_header`` is a header by which a proxy says who asks: that name stands in the store's marks. Without
    it, the user of this process does. ``crons`` are the schedules of an application, :attr:`rmqclient.App.crons`.
    """

    def __init__(
        self,
        place: Path | str | MessageStore,
        *,
        token: str | None = None,
        guarded: bool = False,
        hosts: Collection[str] = LOOPBACK,
        allow_actions: bool = False,
        author_header: str | None = None,
        crons: Collection[Cron] | None = None,
    ) -> None:
        if token is not None and len(token) < 16:
            raise ValueError(f"a token of {len(token)} characters can be guessed: give at least 16")
        self.token = token or secrets.token_urlsafe(32)
        self.desk = Desk(place, allow_actions=allow_actions, author_header=author_header, crons=crons)
        self._inside = _pages(self.desk)
        self._gate = Gate(self._inside, token=self.token, guarded=guarded, hosts=hosts, locked=_locked)
        if token is None and not guarded:
            _log.warning("the dashboard of %s is open to anyone who adds ?token=%s", self.desk.name, self.token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        if scope["type"] == "lifespan":
            await self._inside(scope, receive, send)
        else:
            await self._gate(scope, receive, send)

    def close(self) -> None:
        """Leave the store. An application that mounts the dashboard calls this at its end; twice does nothing."""
        self.desk.close()


dashboard = Dashboard
"""Makes a :class:`Dashboard` that is mounted into an application.

::

    app.mount("/rmq", dashboard("./store", guarded=True, hosts=["shop.example"]))
"""


def _pages(desk: Desk) -> Starlette:
    inside = Starlette(
        routes=[
            Route("/", overview.show),
            *topics.ROUTES,
            *groups.ROUTES,
            *search.ROUTES,
            *messages.ROUTES,
            *dead_letters.ROUTES,
            *workers.ROUTES,
            *waiting.ROUTES,
            *events.ROUTES,
            Route("/live", _live),
            Route("/history", _history),
            Route("/favicon.ico", _icon),
            Mount("/static", Assets()),
        ],
        # What a page says of a store and what a stranger can make it say never meet in one answer: the cookie that a
        # page needs is sent to no page that another site asks for. So sizes tell nothing.
        middleware=[Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=5)],
        exception_handlers={
            HTTPException: _refused,
            WrongInput: _wrong_input,
            QueueError: _failed,
            Unreadable: _failed,
            OSError: _failed,
        },
        lifespan=_lifespan,
    )
    inside.state.desk = desk
    return inside


@contextlib.asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    yield
    app.state.desk.close()


async def _live(request: Request) -> Response:
    desk = desk_of(request)
    desk.live.begin()
    try:
        stream = desk.live.stream(asked(request, "group"))
    except TooManyClients as error:
        return PlainTextResponse(f"{error}\n", 503, headers={"Retry-After": "30"})
    if request.method == "HEAD":  # a page asks why it gets none: a browser does not say with what an answer ended
        return Response(media_type="text/event-stream")
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _history(request: Request) -> Response:
    """Answer with the data of a page's charts: for the time of ``?range=``, and one ``?group=`` or all groups."""
    desk, group = desk_of(request), asked(request, "group")
    desk.live.begin()
    known = desk.past.of(asked_range(request))
    shown = {
        "since": known.since_ms / 1000,
        "until": known.until_ms / 1000,
        "marks": told(desk.past.marks(known.since_ms, group)),
        "series": known.series(group),
        "samples": [each.shown(group) for each in desk.live.samples()] if known.name == "10m" else [],
    }
    return Response(orjson.dumps(shown), media_type="application/json")


def _icon(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/static/favicon.svg", 307)


async def _locked(scope: Scope, receive: Receive, send: Send) -> None:
    answer = PlainTextResponse(
        "This dashboard is locked. Open the address that `rmq dashboard` printed: it ends in ?token=...\n",
        401,
        headers={"WWW-Authenticate": 'Bearer realm="rmq dashboard"'},
    )
    await answer(scope, receive, send)


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(request, error.status_code, error.detail)


def _wrong_input(request: Request, error: Exception) -> Response:
    return _problem(request, 400, str(error))


def _failed(request: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, _MISSING) else 400 if isinstance(error, InvalidName) else 503
    if status == 503:
        _log.warning("%s: %s", request.url.path, error)
    return _problem(request, status, str(error))


def _problem(request: Request, status: int, text: str) -> Response:
    titles = {400: "Not understood", 403: "Not allowed", 404: "Not here", 413: "Too large"}
    title = titles.get(status, "Not now")
    return desk_of(request).page(request, "problem.html", status=status, title=title, text=text)
