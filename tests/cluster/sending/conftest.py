"""Producers of scripted clusters, and answers of brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rmqclient import Producer
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import RequestCode, request_fields, response
from tests.support.cluster.scripted_cluster import Script, ScriptedCluster, scripted_cluster

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE
TWO = ("broker-a", "broker-b")

Answer = Callable[[Frame], Frame | None]


@contextmanager
def producing(
    script: Script | None = None, *, options: str = "timeout=20", producer: dict[str, Any] | None = None, **cluster: Any
) -> Iterator[tuple[ScriptedCluster, Producer]]:
    """Run a scripted cluster and a producer of it."""
    with (
        scripted_cluster(script, **cluster) as servers,
        Producer(f"rocketmq://{servers.address}?{options}", **(producer or {})) as made,
    ):
        yield servers, made


def stored(asked: Frame, offset: int = 0, code: int = 0) -> Frame:
    """Return the answer that a message is stored."""
    queue_id = request_fields(asked)["queueId"]
    place = f"7F00000100002A9F{offset:016X}"
    return response(asked, code, msgId=place, queueId=queue_id, queueOffset=offset)


def properties_of(asked: Frame) -> dict[str, str]:
    """Return the properties of the message that a request sends."""
    return parsed(request_fields(asked)["properties"])


def parsed(text: str) -> dict[str, str]:
    """Return properties as they stand on the wire by their names."""
    return dict(pair.split("\x01") for pair in text.split("\x02") if pair)


def broker_of(asked: Frame) -> str:
    """Return the broker that a send is for."""
    name = request_fields(asked)["bname"]
    assert isinstance(name, str)
    return name


def only_on(broker: str, answer: Answer) -> Answer:
    """Return what answers so on one broker; on the others messages are stored."""
    return lambda asked: answer(asked) if broker_of(asked) == broker else stored(asked)


def no(code: int, remark: str = "no") -> Answer:
    """Return what answers every request with this code."""
    return lambda asked: response(asked, code, remark=remark)


def nothing(asked: Frame) -> None:
    """Leave a request unanswered."""


def in_turn(*answers: Answer) -> Answer:
    """Return what answers the first request by the first of these, and so on; later messages are stored."""
    left = iter(answers)

    def answer(asked: Frame) -> Frame | None:
        return next(left, stored)(asked)

    return answer
