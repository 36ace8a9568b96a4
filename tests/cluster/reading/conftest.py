"""A cluster of two brokers that keeps messages, and a backend of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from rmqclient.backend import Backend
from rmqclient.cluster.backend import cluster_backend
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import response
from tests.support.cluster.keeping_cluster import KeepingCluster, keeping_cluster

BROKERS = ("broker-a", "broker-b")


def answering(body: object) -> Callable[[Frame], Frame]:
    """Return what answers every request with a JSON body."""
    return lambda asked: response(asked, body=orjson.dumps(body))


def runtime(**values: object) -> Callable[[Frame], Frame]:
    """Return what tells these values of a broker, which has dispatched everything unless they say otherwise."""
    known = {"brokerVersion": "407", "dispatchBehindBytes": "0", "commitLogMinOffset": "0", **values}
    tell = answering({"table": {name: str(value) for name, value in known.items()}})

    def answer(asked: Frame) -> Frame:
        frame = tell(asked)
        frame.version = int(str(known["brokerVersion"]))
        return frame

    return answer


@pytest.fixture
def kept() -> Iterator[KeepingCluster]:
    script = {RequestCode.GET_BROKER_RUNTIME_INFO: runtime()}
    with keeping_cluster(script, topics={"orders": 1}, brokers=BROKERS) as cluster:
        yield cluster


@pytest.fixture
def url(kept: KeepingCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(os.environ, "RMQ_STATE_DIR", str(tmp_path / "state"))
    return f"rocketmq://{kept.cluster.address}"


@pytest.fixture
def backend(url: str) -> Iterator[Backend]:
    opened = cluster_backend(url)
    yield opened
    opened.close()
