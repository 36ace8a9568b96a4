"""A client's connections without a client, which leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rmqclient.cluster.net.connection import Connection
from rmqclient.cluster.net.connections import Connections
from rmqclient.errors import StoreClosed
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import RequestCode, request
from tests.support.cluster.leftovers import nothing_left_behind

Open = Callable[[float], Connections]


@contextmanager
def closing(connections: Connections) -> Iterator[Connections]:
    """Close the connections at the end of a block."""
    try:
        yield connections
    finally:
        connections.close(StoreClosed("the test is over"))


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left_behind():
        yield


@pytest.fixture
def connections() -> Iterator[Connections]:
    """Connections without TLS."""
    with closing(Connections(None, 15.0, ignore, forget)) as opened:
        yield opened


@pytest.fixture
def hasty() -> Iterator[Connections]:
    """Connections that are made, and whose silent peers answer a question, in 1 s or not at all."""
    with closing(Connections(None, 1.0, ignore, forget)) as opened:
        yield opened


def ignore(connection: Connection, asked: Frame) -> None:
    """Leave a request of the peer unanswered."""


def forget(address: str) -> None:
    """Do nothing about a connection that has ended."""


def question(body: bytes = b"") -> Frame:
    """Return a request that the peers of these tests understand."""
    return request(RequestCode.GET_MAX_OFFSET, body, topic="orders", queueId=0)
