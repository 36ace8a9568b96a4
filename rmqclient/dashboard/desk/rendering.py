"""Rendering: templates, and how times and states are written.

Every value is text to the templates: Jinja2 escapes it. Nothing here makes markup but :func:`when`, from numbers.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request

from rmqclient.dashboard.desk.assets import version
from rmqclient.dashboard.looking.words import NOTHING, about, age, count, size


class Renderer:
    """Renders the templates of this package."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("rmqclient.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "count": count,
            "age": age,
            "about": about,
            "when": when,
            "size": size,
            "json": partial(json.dumps, indent=2, ensure_ascii=False),
            "tone": tone,
        }

    def render(self, request: Request, template: str, facts: Mapping[str, Any]) -> str:
        """Return a template as text. Raises what Jinja2 raises for a template that asks for what is not there."""
        base = request.scope.get("root_path", "").rstrip("/")
        known = {
            "base": base,
            "url": partial(url, base),
            "with_query": partial(_with_query, request),
            "asset": partial(_asset, base),
            "here": request.url.path.removeprefix(base) or "/",
            "form_token": request.state.form_token,
        }
        page = self._environment.get_template(template).render({**known, **facts})
        return page.encode("utf-8", "backslashreplace").decode()  # names of files may have halves of surrogate pairs


def url(base: str, *parts: object, **query: object) -> str:
    """Return the path of a page: its parts, quoted, and what is asked for; None and empty texts are left out."""
    path = "/".join(quote(str(part), safe="") for part in parts)
    asked = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "", False)}
    return f"{base}/{path}" + (f"?{urlencode(asked, doseq=True)}" if asked else "")


def _asset(base: str, name: str) -> str:
    """Return the address of a script, style or picture, which is another one when the file is."""
    return f"{base}/static/{name}?v={version()}"


def _with_query(request: Request, **changed: object) -> str:
    """Return this page with some of its filters changed; None takes one away."""
    query = {**request.query_params, **{name.rstrip("_"): value for name, value in changed.items()}}
    return "?" + urlencode({name: value for name, value in query.items() if value not in (None, "")})


def when(milliseconds: int | None) -> str | Markup:
    """Return a time in UTC and how long ago it was, which the browser turns into its own zone; a dash for None and 0.

    Who hovers over it, or has no script, gets it exactly.
    """
    if not milliseconds:
        return NOTHING
    try:
        moment = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms since 1970"
    exact = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    is_today = moment.date() == datetime.datetime.now(datetime.UTC).date()
    shown = moment.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")
    passed = time.time() - milliseconds / 1000
    away = f"{about(passed)} ago" if passed >= 0 else f"in {about(-passed)}"
    return Markup('<time datetime="{0}" title="{0}">{1} <i>UTC</i> <small>{2}</small></time>').format(
        exact, shown, away
    )


def tone(state: str) -> str:
    """Return the colour of a state in words: ``good``, ``busy``, ``warn``, ``bad`` or ``calm``."""
    for start, colour in _TONES.items():
        if state.startswith(start):
            return colour
    return "calm"


_TONES = {
    "running": "good",
    "ready": "good",
    "busy": "good",
    "idle": "calm",
    "hung": "bad",
    "behind": "bad",
    "no members": "bad",
    "silent": "bad",
    "overdue": "bad",
    "a file": "bad",
    "no owner": "warn",
    "flow": "warn",
    "suspended": "warn",
    "paused": "warn",
    "retrying": "busy",
    "waiting": "warn",
    "starting": "busy",
    "draining": "busy",
    "losing": "bad",
    "given up": "bad",
}
