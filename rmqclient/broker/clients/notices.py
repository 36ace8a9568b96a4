"""Notices: what the broker tells members without being asked."""

from __future__ import annotations

from collections.abc import Mapping

from rmqclient.broker.clients.consumer import Consumer
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import Language, RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from rmqclient.store import MessageQueue, clock

_ONEWAY = 2


def tell_members_changed(consumer: Consumer) -> None:
    """Make a member look who is in its group, and share the queues anew. [NOTIFY_CONSUMER_IDS_CHANGED]"""
    consumer.peer.send(_oneway(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup=consumer.group)))


def tell_offsets(consumer: Consumer, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
    """Make a member drop some queues, and go on at these offsets in them. [RESET_CONSUMER_CLIENT_OFFSET]"""
    told = bodies.ResetOffset(dict(offsets))
    body = told.encode_list() if consumer.language == Language.CPP else told.encode()
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
