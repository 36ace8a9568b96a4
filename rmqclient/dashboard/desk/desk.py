"""Desk: what every page needs, one for each dashboard."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse

from rmqclient.admin import Admin
from rmqclient.backend import Backend
from rmqclient.dashboard.desk.jobs import Jobs
from rmqclient.dashboard.desk.live import Live
from rmqclient.dashboard.desk.rendering import Renderer
from rmqclient.dashboard.looking.around import Around
from rmqclient.dashboard.looking.issues import Issues
from rmqclient.dashboard.looking.past import Past
from rmqclient.dashboard.looking.sample import Sampling
from rmqclient.opening import MessageStore, open_backend, open_local_store
from rmqclient.schedules.cron import Cron
from rmqclient.store.marks import user
from rmqclient.store.observe.reading import Reading
from rmqclient.store.threads.logs import Log

_log = Log("rmqclient.dashboard")

_LONGEST_AUTHOR = 100


class Desk:
    """The store, opened at the first request: an application may fork before that. Safe for threads.

    ``place`` is a directory, or an open store, which stays open. The housekeeper's role is left to other processes.
    ``crons`` are the schedules of an application, None if none was named.
    """

    def __init__(
        self,
        place: Path | str | MessageStore,
        *,
        allow_actions: bool,
        author_header: str | None = None,
        crons: Collection[Cron] | None = None,
    ) -> None:
        self.allow_actions = allow_actions
        self.crons = crons or ()
        self.has_application = crons is not None
        self._author_header = author_header
        self.renderer = Renderer()
        self.live = Live(lambda: Sampling(self.store().root))
        self.past = Past(lambda: self.store().root)
        self.around = Around(lambda: self.store().root)
        self.issues = Issues()
        self.jobs = Jobs()
        self._place = place
        self._opening = threading.Lock()
        self._store: MessageStore | None = place if isinstance(place, MessageStore) else None

    @property
    def name(self) -> str:
        """The name of the store's directory."""
        root = self._place.root if isinstance(self._place, MessageStore) else Path(self._place)
        return root.resolve().name

    def store(self) -> MessageStore:
        """Return the open store. Raises NotOnCluster, and what :func:`rmqclient.store.open_store` raises."""
        with self._opening:
            if self._store is None:
                assert not isinstance(self._place, MessageStore)
                self._store = open_local_store(self._place, "what a dashboard shows", housekeeping=False)
            return self._store

    def backend(self) -> Backend:
        """Return the same store as the rooms that read messages take it."""
        return open_backend(self.store())

    def admin(self, request: Request | None = None) -> Admin:
        """Return what looks at topics and groups, and changes them for whoever asked."""
        return Admin(self.store(), author=None if request is None else self.author(request))

    def reading(self) -> Reading:
        """Return the shared words of the store, for one request; close it."""
        return Reading(str(self.store().root))

    def page(self, request: Request, template: str, *, status: int = 200, **facts: Any) -> HTMLResponse:
        """Return a page: a template with these facts."""
        known = {"store_name": self.name, "allow_actions": self.allow_actions, "latest": self.live.latest()}
        return HTMLResponse(self.renderer.render(request, template, {**known, **facts}), status)

    @contextmanager
    def acting(self, request: Request, action: str, **facts: Any) -> Iterator[dict[str, Any]]:
        """Write the log line of an action at its end, also when it fails half-way; it may add to the facts."""
        try:
            yield facts
        except Exception as error:
            self.acted(request, action, **facts, error=str(error))
            raise
        self.acted(request, action, **facts)

    def author(self, request: Request, given: str = "") -> str:
        """Return who acts, for the marks of the store: whom the proxy names, or the user of this process.

        Beside the user stands the browser, as in the log: everyone with the token acts as this user. A name that a
        visitor has typed, ``given``, is marked as such: nobody has checked it.
        """
        if name := self.named(request):
            return name
        typed = "".join(filter(str.isprintable, given)).strip()[:_LONGEST_AUTHOR]
        return f"{typed} (typed)" if typed else f"{user()}, browser {request.state.browser}"

    def named(self, request: Request) -> str:
        """Return whom the proxy names; empty without a proxy that does."""
        named = request.headers.get(self._author_header, "") if self._author_header else ""
        return "".join(filter(str.isprintable, named)).strip()[:_LONGEST_AUTHOR]

    def acted(self, request: Request, action: str, **facts: Any) -> None:
        """Write the log line of an action: what was done, and which browser asked for it."""
        said = " ".join(f"{name}={value!r}" for name, value in facts.items())
        asker = request.client.host if request.client else "-"
        _log.info("action %s %s by browser %s at %s", action, said, request.state.browser, asker)

    def close(self) -> None:
        """End the sampler and what runs, and close the store if it was opened here. Closing twice does nothing."""
        self.live.close()
        self.jobs.close()
        with self._opening:
            if self._store is not None and not isinstance(self._place, MessageStore):
                self._store.close()
                self._store = None


def desk_of(request: Request) -> Desk:
    """Return the desk of the dashboard that got a request."""
    desk = request.app.state.desk
    assert isinstance(desk, Desk)
    return desk
