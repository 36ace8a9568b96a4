"""Recalls: cancels timer messages, by request 370. [RecallMessageProcessor of 5.3.3]

A RocketMQ broker answers success even if the message no longer waits. Here the answer is then an error.
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqclient.broker.request import Request
from rmqclient.broker.routes import PUB, Route, of_topic
from rmqclient.broker.sending.appends import Appends
from rmqclient.broker.sending.waits import RecallHandle
from rmqclient.broker.settings import ServeSettings
from rmqclient.broker.topics.topics import Topics
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.store import clock


class Recalls:
    """Cancels timer messages."""

    def __init__(self, settings: ServeSettings, topics: Topics, appends: Appends) -> None:
        self._settings = settings
        self._topics = topics
        self._appends = appends

    def routes(self) -> Iterable[Route]:
        """Declare recalls. They are slow, because the search first brings the index up to date."""
        yield Route(RequestCode.RECALL_MESSAGE, self._recall, needs=of_topic(PUB), writes=True, slow=True)

    def _recall(self, request: Request) -> Frame:
        topic: str = request.fields["topic"]
        if self._settings.read_only:
            raise AnswerError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "recall failed, broker service not available",
            )
        if self._topics.config(topic) is None:
            raise AnswerError(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
        try:
            handle = RecallHandle.of(request.fields["recallHandle"])
        except ValueError as error:
            raise AnswerError(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
        if handle.topic != topic:
            raise _illegal("topic not match")
        if handle.broker_name != self._settings.broker_name:
            raise _illegal("broker service not available")
        if handle.due_ms <= clock.wall_ms():
            raise _illegal("timestamp invalid")
        if not self._appends.cancel(handle.message_id, topic):
            raise _illegal(f"message {handle.message_id} does not wait for its time")
        return request.success(msgId=handle.message_id)


def _illegal(what: str) -> AnswerError:
    return AnswerError(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {what}")
