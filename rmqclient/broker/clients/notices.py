"""Notices: requests that the broker sends to members on its own."""

from __future__ import annotations

from collections.abc import Mapping

from rmqclient.broker.clients.member import Consumer
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import Language, RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from rmqclient.store import MessageQueue, clock

_ONEWAY = 2


def tell_members_changed(consumer: Consumer) -> None:
    """Make a member rebalance: it asks for the members of its group. [NOTIFY_CONSUMER_IDS_CHANGED]"""
    consumer.peer.send(_oneway(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup=consumer.group)))


def tell_offsets(consumer: Consumer, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
    """Make a member drop these queues and resume at these offsets. [RESET_CONSUMER_CLIENT_OFFSET]"""
    reset = bodies.ResetOffset(dict(offsets))
    body = reset.encode_list() if consumer.language == Language.CPP else reset.encode()
    now_ms = clock.wall_ms()
    consumer.peer.send(
        _oneway(
            request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                body,
                topic=topic,
                group=consumer.group,
                timestamp=now_ms,
                isForce=True,
            )
        )
    )


def _oneway(frame: Frame) -> Frame:
    frame.flag |= _ONEWAY
    return frame
