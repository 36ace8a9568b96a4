"""Clients that a test plays frame by frame, on connections to a server process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rmqclient.remoting.bodies import Heartbeat, ProducerData
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from rmqclient.testing import Server
from tests.support.cluster.caller import Caller, connected

GROUP = "makers"


@contextmanager
def producer(server: Server, client_id: str, group: str = GROUP) -> Iterator[Caller]:
    """Return a connection whose heartbeat says that it is a producer."""
    with connected(server.address) as caller:
        beat = Heartbeat(client_id, (ProducerData(group),)).encode()
        answer = caller.ask(request(RequestCode.HEART_BEAT, beat))
        assert answer.code == 0, answer.remark
        yield caller


def stored(caller: Caller, frame: Frame) -> Frame:
    """Send a message and return the answer, which must be a success."""
    answer = caller.ask(frame)
    assert answer.code == 0, answer.remark
    return answer
