"""Guard: checks the signature and the permissions of each request before a handler sees it. [PlainPermissionManager]

A denied request is answered as a 4.9 broker does: SYSTEM_ERROR, and a text that begins with the name of Java's
exception, by which clients recognize it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rmqclient.broker.access.accounts import Account, Accounts, is_readable_by_others, read_accounts
from rmqclient.broker.address import Address
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.request import Handler, Request
from rmqclient.broker.routes import Kind, Need, Permission, Route, need_of_group, need_of_topic
from rmqclient.broker.topics.system_topics import OF_ALL_TOPICS
from rmqclient.errors import AccountsUnusable
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError, BodyError, HeaderError
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.signature import is_signed
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_DENIED: Final = "org.apache.rocketmq.acl.common.AclException"
_LOOK_S: Final = 5.0
"""Seconds between two checks of the file for changes. [AclFileWatchService]"""


class Denied(Exception):
    """The request is not allowed; the text is for the client."""


class Guard:
    """Stands in front of the handlers. For the thread of the event loop.

    ``route_of`` returns the route of a request code; a code that has none is refused.
    """

    def __init__(
        self,
        path: Path,
        route_of: Callable[[int], Route | None],
        handler: Handler,
        counters: Counters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._route_of = route_of
        self._handler = handler
        self._counters = counters
        self._clock = clock
        self._look_at = 0.0
        self._stamp: object = None
        self._accounts = Accounts({}, lambda _: False)

    def open(self) -> None:
        """Read the file. Raises AccountsUnusable."""
        self._accounts = read_accounts(self._path)
        self._stamp = self._stamp_now()
        self._look_at = self._clock() + _LOOK_S
        if is_readable_by_others(self._path):
            _log.warning("access keys %s can be read by every user of this host: set its mode to 600", self._path)

    def answer(self, request: Request) -> Frame | None:
        """Refuse what is not allowed."""
        if self._clock() >= self._look_at:
            self._read_again()
        try:
            account = self._check(request)
        except Denied as denied:
            return self._refuse(request, f"{_DENIED}: {denied}")
        except (HeaderError, BodyError) as error:
            return self._refuse(request, f"{_DENIED}: {error}")
        if account is not None:
            request.check_topic = functools.partial(self._check_topic, account, request.peer.remote, request.code)
            request.reads_group = lambda name: _has(account, need_of_group(name))
        return self._handler(request)

    def _check(self, request: Request) -> Account | None:
        """Return the account whose rules a handler has to check; None if the client may do everything."""
        host = request.peer.remote.host
        if self._accounts.is_white(host):
            return None
        account = self._account_of(request)
        if account.is_white(host):
            return None
        if not is_signed(request.frame.fields, request.body, account.signing_key):
            raise Denied(f"Check signature failed for accessKey={account.access_key}")
        if account.is_admin and not account.has_rules:
            return None
        route = self._route_of(request.code)
        if route is None:
            raise Denied(f"request code={request.code} is not supported, so no permission allows it")
        for need in route.needs(request):
            _check_need(need, account, request.code)
        return account

    def _check_topic(self, account: Account, client: Address, code: int, topic: str, *, writes: bool) -> None:
        """Check a topic that a handler has found. For any thread. Raises AnswerError."""
        try:
            _check_need(need_of_topic(topic, Permission.PUB if writes else Permission.SUB), account, code)
        except Denied as denied:
            text = f"{_DENIED}: {denied}"
            self._count(client, code, text)
            raise AnswerError(ResponseCode.SYSTEM_ERROR, text) from None

    def _account_of(self, request: Request) -> Account:
        key = request.frame.fields.get("AccessKey")
        if not key:
            raise Denied("No accessKey is configured")
        account = self._accounts.by_key.get(key)
        if account is None:
            raise Denied(f"No acl config for {key:.80}")
        return account

    def _refuse(self, request: Request, text: str) -> Frame:
        self._count(request.peer.remote, request.code, text)
        return request.failure(ResponseCode.SYSTEM_ERROR, text)

    def _count(self, client: Address, code: int, text: str) -> None:
        self._counters.refuse(Refusal.ACCESS, f"client {client}: request {code} refused: {text}")

    def _read_again(self) -> None:
        self._look_at = self._clock() + _LOOK_S
        if self._stamp_now() == self._stamp:
            return
        try:
            self.open()
            _log.info("access keys %s read again", self._path)
        except AccountsUnusable as error:
            self._stamp = self._stamp_now()
            _log.warning("the access keys stay as they were: %s", error)

    def _stamp_now(self) -> object:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _check_need(need: Need, account: Account, code: int) -> None:
    if _has(account, need):
        return
    if need.kind is Kind.SERVER:
        raise Denied(f"Need admin permission for request code={code}, but accessKey={account.access_key} is not")
    raise Denied(f"No default permission for {need.kind}:{need.name}")


def _has(account: Account, need: Need) -> bool:
    """Return whether an account has a permission. Defaults do not apply to topics that hold messages of all topics."""
    if need.kind is Kind.SERVER:
        return account.is_admin
    if need.kind is Kind.GROUP:
        return bool(account.groups.get(need.name, account.default_group) & need.permission)
    default = Permission.DENY if need.name in OF_ALL_TOPICS else account.default_topic
    return bool(account.topics.get(need.name, default) & need.permission)
