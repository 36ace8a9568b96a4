"""Sending: requests 310, 10 and 320. [SendMessageProcessor of 4.9.7]

A request is answered in one turn of the event loop: checks, one append, the answer. Only the first message of a new
topic goes to a thread, because the topic must be on disk before its message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rmqclient.broker.request import Handler, Peer, Request
from rmqclient.broker.routes import Route
from rmqclient.broker.sending.appends import Appends
from rmqclient.broker.sending.flushes import Flushes
from rmqclient.broker.sending.incoming import Incoming, added_properties, of_send
from rmqclient.broker.sending.outcomes import refused, stored
from rmqclient.broker.sending.plain_sends import PlainSends
from rmqclient.broker.sending.retries import Retries
from rmqclient.broker.sending.topic_checks import TopicChecks, group_of_retries
from rmqclient.broker.sending.waits import RecallHandle, Wait, wait_of
from rmqclient.broker.settings import ServeSettings
from rmqclient.errors import QueueError
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame


class Sending:
    """Stores messages and answers with their offsets. ``later`` answers a request on a thread of the pool.

    ``expect_reply`` is called with a message that wants a reply, and its peer, before it is stored. A batch has
    ``most_bytes`` at most.
    """

    def __init__(
        self,
        settings: ServeSettings,
        checks: TopicChecks,
        retries: Retries,
        appends: Appends,
        flushes: Flushes,
        most_bytes: int,
        expect_reply: Callable[[Incoming, Peer], None],
        later: Callable[[Handler, Request], None],
    ) -> None:
        self._settings = settings
        self._added = added_properties(settings.cluster_name)
        self._checks = checks
        self._retries = retries
        self._appends = appends
        self._flushes = flushes
        self._plain = PlainSends(checks, appends, flushes, settings.cluster_name)
        self._most_bytes = most_bytes
        self._expect_reply = expect_reply
        self._later = later

    def routes(self) -> Iterable[Route]:
        """Declare sends. They are not slow; only the first message of a topic goes to a thread."""
        for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            yield Route(code, self._send, needs=of_send, writes=True)

    def _send(self, request: Request) -> Frame | None:
        try:
            if (plain := self._plain.answer(request)) is not None:
                return plain[0]
        except QueueError as error:
            return refused(request, error)
        if self._checks.is_open(request.fields["topic"]):
            return self._store(request)
        self._later(self._store, request)
        return None

    def _store(self, request: Request) -> Frame | None:
        try:
            queue_id = self._checks.queue_id(request)
            message = Incoming.of(request)
            message.queue_id = queue_id
            message.properties.update(self._added)
            if request.code == RequestCode.SEND_BATCH_MESSAGE or request.fields.get("batch"):
                return self._store_batch(request, message)
            return self._store_one(request, message)
        except QueueError as error:
            return refused(request, error)

    def _store_one(self, request: Request, message: Incoming) -> Frame | None:
        queue_id, properties = message.queue_id, message.properties
        wait = wait_of(properties)
        group = group_of_retries(message.topic)
        if group is not None:
            wait = self._retries.settle(request, message, group, wait)
        is_half = message.is_half and not (message.reconsume_times and wait.level)
        is_patient = _waits_for_flush(properties, is_kept=is_half or wait.level > 0)
        if "REPLY_TO_CLIENT" in properties:
            self._expect_reply(message, request.peer)
        result = self._appends.append(message, wait, is_half=is_half)
        assert result.offset_message_id is not None
        answer = stored(
            request, result.offset_message_id, queue_id, result.queue_offset, self._recall_handle(message, wait)
        )
        return self._flushes.when_flushed(request, answer, result.commit_log_end) if is_patient else answer

    def _store_batch(self, request: Request, batch: Incoming) -> Frame | None:
        if group_of_retries(batch.topic) is not None:
            raise AnswerError(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {batch.topic}")
        if len(batch.body) > self._most_bytes:
            raise AnswerError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: a batch of {len(batch.body)} bytes, and {self._most_bytes} are the most",
            )
        is_patient = _waits_for_flush(batch.properties, is_kept=True)
        results = self._appends.append_batch(batch)
        ids = ",".join([result.offset_message_id or "" for result in results])
        answer = stored(request, ids, batch.queue_id, results[0].queue_offset)
        return self._flushes.when_flushed(request, answer, results[-1].commit_log_end) if is_patient else answer

    def _recall_handle(self, message: Incoming, wait: Wait) -> str | None:
        """Return the handle that recalls a timer message; None for others. [attachRecallHandle]"""
        unique_key = message.properties.get("UNIQ_KEY")
        if not wait.due_ms or not unique_key:
            return None
        return RecallHandle(message.topic, self._settings.broker_name, wait.due_ms, unique_key).text()


def _waits_for_flush(properties: dict[str, str], *, is_kept: bool) -> bool:
    """Return whether the client waits for the disk; remove the property unless ``is_kept``."""
    wait = properties.get("WAIT") if is_kept else properties.pop("WAIT", None)
    return wait is None or wait.lower() == "true"
