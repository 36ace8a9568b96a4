"""Gate: who may ask the dashboard, and the headers of every answer.

A store's files are readable by their owner alone; an open port would show every body to each user of the host. So a
client shows a token, once in the URL that ``rmq dashboard`` prints, and a cookie afterwards.

======================  ===============================================================================================
``Host``                one of those that were allowed, otherwise 421: a foreign name may have been bound to our address
``Origin``              that of the host, if a browser sends one, otherwise 403
``Sec-Fetch-Site``      ``same-origin`` for a POST; for a browser that does not send it, ``Origin`` must be there
the token               ``?token=``, which is exchanged for the cookie; ``Authorization: Bearer`` for programs
the cookie              an id of the browser, signed with the token; it says who acted in the log
the form token          in each form that changes something; it is derived from the cookie
======================  ===============================================================================================

With ``guarded=True`` an application around the dashboard decides who may see it. Everything else holds then, too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CONTENT_POLICY = "; ".join(
    [
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "connect", "font")),
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    # Under no-referrer a browser sends "Origin: null" with our own forms, so nothing foreign could be told from them.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
PUBLIC = ("/static/",)
"""Paths that need no token: they are the same for every store."""


class Gate:
    """Answers by itself what may not come in; an ASGI application around ``app``.

    ``token`` signs cookies; who shows it comes in. ``hosts`` are names with or without a port. ``locked`` makes the
    answer for a client without a token.
    """

    def __init__(self, app: ASGIApp, *, token: str, guarded: bool, hosts: Collection[str], locked: ASGIApp) -> None:
        self._app = app
        self._token = token
        self._guarded = guarded
        self._hosts = {host.lower() for host in hosts}
        self._locked = locked
        self._cookie = f"rmq_{_signed(token, 'name')[:8]}"  # cookies do not know ports: each dashboard has its own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it. Connections of other kinds than HTTP are closed."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
        answer: ASGIApp = self._refusal(scope, headers) or self._arrival(scope) or self._by_cookie(scope, headers)
        await answer(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer to a request under a foreign name, or one that another site has made."""
        host = headers.get("host", "").lower()
        if host not in self._hosts and _name_of(host) not in self._hosts:
            return PlainTextResponse(f"{host!r} is not a name of this dashboard: see --allowed-host\n", 421)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and _host_of(origin) != host:
            return PlainTextResponse(f"a page of {origin!r} may ask nothing here\n", 403)
        if scope["method"] not in ("GET", "HEAD") and site != "same-origin" and (site or origin is None):
            return PlainTextResponse("only a page of this dashboard may change something\n", 403)
        return None

    def _arrival(self, scope: Scope) -> Response | None:
        """Return the answer to a right token in the URL: the same page without it, and a cookie."""
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = dict(asked).get("token")
        if shown is None or scope["method"] != "GET" or not _same(shown, self._token):
            return None
        rest = urlencode([(name, value) for name, value in asked if name != "token"])
        path = "/" + quote(scope["path"].lstrip("/"))  # with two slashes it would be another host
        answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
        self._give_cookie(answer, scope, secrets.token_hex(4))
        return answer

    def _by_cookie(self, scope: Scope, headers: Headers) -> ASGIApp:
        browser = self._browser(headers) or self._bearer(headers)
        if browser is not None or self._is_public(scope):
            return self._let_in(scope, browser or "")
        if not self._guarded:
            return self._locked
        browser = secrets.token_hex(4)
        inside = self._let_in(scope, browser)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await inside(scope, receive, self._giving_cookie(scope, send, browser))

        return answer

    def _let_in(self, scope: Scope, browser: str) -> ASGIApp:
        scope.setdefault("state", {})
        scope["state"] = {**scope["state"], "browser": browser, "form_token": _signed(self._token, f"form {browser}")}
        return self._app

    def _browser(self, headers: Headers) -> str | None:
        """Return the id in a cookie that was signed here."""
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return None
        browser, _, signature = (cookie.value if cookie else "").partition(".")
        return browser if browser and _same(signature, _signed(self._token, browser)) else None

    def _bearer(self, headers: Headers) -> str | None:
        kind, _, shown = headers.get("authorization", "").partition(" ")
        return "bearer" if kind.lower() == "bearer" and _same(shown, self._token) else None

    def _is_public(self, scope: Scope) -> bool:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return bool(path.startswith(PUBLIC))

    def _give_cookie(self, answer: Response, scope: Scope, browser: str) -> None:
        answer.set_cookie(
            self._cookie,
            f"{browser}.{_signed(self._token, browser)}",
            path=scope.get("root_path") or "/",
            secure=scope.get("scheme") == "https",
            httponly=True,
            samesite="strict",
        )

    def _giving_cookie(self, scope: Scope, send: Send, browser: str) -> Send:
        bare = Response()
        self._give_cookie(bare, scope, browser)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("set-cookie", bare.headers["set-cookie"])
            await send(message)

        return sending


def hosts_of(address: str, port: int | None, allowed: Collection[str] = ()) -> set[str]:
    """Return the names by which a dashboard may be asked that listens on an address; no port stands for any."""
    shown = f"[{address}]" if ":" in address else address
    names = {*LOOPBACK, *([] if address in ("", "0.0.0.0", "::") else [shown])}  # noqa: S104 - compared, not bound
    return {*allowed, *(names if port is None else (f"{name}:{port}" for name in names))}


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending


def _host_of(origin: str) -> str:
    """Return the name and port of an origin; empty for what is no URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _name_of(host: str) -> str:
    """Return a host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _signed(token: str, text: str) -> str:
    return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
