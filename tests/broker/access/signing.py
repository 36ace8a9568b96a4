"""Requests that are signed, and what a guard says of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rmqclient.broker.access.guard import Guard
from rmqclient.broker.address import Address
from rmqclient.broker.limits.counters import Counters
from rmqclient.broker.request import Handler, Request
from rmqclient.broker.routes import Route
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.signature import signature_of
from rmqclient.remoting.table import request
from tests.broker.asking import LOCAL, AskingPeer, asking

SECRET = "twelve letters"
OK = "done"


@functools.cache
def routes() -> Mapping[int, Route]:
    """Return the routes of a broker by their codes; no handler of them can be called any more."""
    with TemporaryDirectory() as directory, asking(Path(directory, "store")) as served:
        return served.broker.routes()


class Guarded:
    """A guard over a file of access keys, with a handler that does everything unless another one is given."""

    def __init__(
        self, path: Path, *accounts: dict[str, Any], white: tuple[str, ...] = (), handler: Handler | None = None
    ) -> None:
        self.path = path / "acl.json"
        self.write(*accounts, white=white)
        self.counters = Counters()
        self.now = 0.0
        self.guard = Guard(self.path, routes().get, handler or _do, self.counters, lambda: self.now)
        self.guard.open()

    def write(self, *accounts: dict[str, Any], white: tuple[str, ...] = ()) -> None:
        """Write the file."""
        content = {"accounts": accounts, "globalWhiteRemoteAddresses": white}
        self.path.write_text(json.dumps(content), encoding="utf-8")
        self.path.chmod(0o600)

    def says(self, frame: Frame, host: str = "10.0.0.9") -> str:
        """Return what the guard answers to a request from a host: ``OK``, or why not."""
        peer = AskingPeer(LOCAL)
        peer.remote = Address(host, 40_000)
        answer = self.guard.answer(Request(frame, peer))
        assert answer is not None
        if answer.code == 0:
            return OK
        assert answer.code == 1
        kind, _, text = (answer.remark or "").partition(": ")
        assert kind == "org.apache.rocketmq.acl.common.AclException"
        return text


def account(access_key: str = "billing", **settings: Any) -> dict[str, Any]:
    """Return an entry of the file."""
    return {"accessKey": access_key, "secretKey": SECRET, **settings}


def signed(frame: Frame, access_key: str = "billing", secret: bytes = SECRET.encode()) -> Frame:
    """Sign a request."""
    frame.fields["AccessKey"] = access_key
    frame.fields["Signature"] = signature_of(frame.fields, frame.body, secret)
    return frame


def sent_to(topic: str) -> Frame:
    """Return a send."""
    return request(
        RequestCode.SEND_MESSAGE,
        b"body",
        producerGroup="senders",
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=0,
        sysFlag=0,
        bornTimestamp=1,
        flag=0,
    )


def pulled_from(topic: str, group: str) -> Frame:
    """Return a pull."""
    return request(
        RequestCode.PULL_MESSAGE,
        consumerGroup=group,
        topic=topic,
        queueId=0,
        queueOffset=0,
        maxMsgNums=1,
        sysFlag=0,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subVersion=0,
    )


def _do(request: Request) -> Frame:
    return request.success() if request.code == 28 else Frame(0, opaque=request.frame.opaque, flag=1)
