"""Plain sends: messages without a delay or transaction, to an existing topic.

Nearly all messages are plain. One search in their properties tells, and they are stored without the steps that others
need. All others are left to :class:`rmqclient.broker.sending.sending.Sending`, which also reports errors. The record
and the answer are the same.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rmqclient.broker.request import Request
from rmqclient.broker.sending.appends import Appends
from rmqclient.broker.sending.flushes import Flushes
from rmqclient.broker.sending.incoming import IS_TRACED, KEPT_FLAGS, REGION, added_properties, text_of
from rmqclient.broker.sending.topic_checks import TopicChecks
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import RESPONSE, Frame
from rmqclient.remoting.table import REQUESTS

_UNUSUAL: Final = re.compile(
    "(?:^|\x02)"
    "(?:DELAY|TIMER_|TRAN_MSG|REPLY_TO_CLIENT|INNER_|__CRC32#|UNIQ_KEY\x01(?:\x02|$)|WAIT\x01(?!true(?:\x02|$)))"
)
"""Properties that a plain message does not have."""
_WAIT: Final = re.compile("(?:^|(?<=\x02))WAIT\x01true(?:\x02|$)")
_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)


class _Names(NamedTuple):
    """The names of a request's fields on the wire."""

    group: str
    topic: str
    default_topic: str
    default_queues: str
    queue_id: str
    sys_flag: str
    born_ms: str
    flag: str
    properties: str
    reconsume_times: str
    batch: str


_LONG_NAMES: Final = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
    "properties", "reconsumeTimes", "batch",
)  # fmt: skip


def _names_of(code: int) -> _Names:
    names = {field.name: field.wire_name for field in REQUESTS[code].own.fields}
    return _Names(*(names[name] for name in _LONG_NAMES))


_NAMES: Final = {code.value: _names_of(code) for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_MESSAGE)}


class PlainSends:
    """Stores plain messages."""

    def __init__(self, checks: TopicChecks, appends: Appends, flushes: Flushes, cluster: str) -> None:
        self._checks = checks
        self._appends = appends
        self._flushes = flushes
        self._added = text_of(added_properties(cluster))

    def answer(self, request: Request) -> tuple[Frame | None] | None:
        """Store a plain message. Returns a tuple of its answer, which is None if it waits for the disk.

        Returns None and does nothing for any other message. Raises as an append.
        """
        frame = request.frame
        fields = frame.fields
        names = _NAMES.get(frame.code)
        if names is None or fields.get(names.reconsume_times, "0") != "0" or fields.get(names.batch) == "true":
            return None
        try:
            topic, text, born_ms = fields[names.topic], fields[names.properties], int(fields[names.born_ms])
            queue_id, flag, sys_flag = int(fields[names.queue_id]), int(fields[names.flag]), int(fields[names.sys_flag])
            _, _, queues = fields[names.group], fields[names.default_topic], int(fields[names.default_queues])
        except (KeyError, ValueError):
            return None
        if queues not in _INT32 or flag not in _INT32 or sys_flag not in _INT32:
            return None
        if born_ms not in _INT64 or _UNUSUAL.search(text):
            return None
        if not 0 <= queue_id < self._checks.settled_queues(topic):
            return None
        end, answer = self._store(request, topic, queue_id, text, flag, sys_flag, born_ms)
        return (self._flushes.when_flushed(request, answer, end),)

    def _store(
        self, request: Request, topic: str, queue_id: int, text: str, flag: int, sys_flag: int, born_ms: int
    ) -> tuple[int, Frame]:
        """Append the message; return the log's end after it, and the answer."""
        frame, peer = request.frame, request.peer
        text = _WAIT.sub("", text)
        if text and text[-1] != "\x02":
            text += "\x02"
        text += self._added
        result = self._appends.append_plain(
            topic, queue_id, frame.body, text, flag, sys_flag & KEPT_FLAGS, born_ms, peer.remote, peer.local
        )
        stored = {
            "msgId": result.offset_message_id or "",
            "queueId": str(queue_id),
            "queueOffset": str(result.queue_offset),
            "MSG_REGION": REGION,
            "TRACE_ON": IS_TRACED,
        }
        answer = Frame(0, stored, b"", frame.opaque, RESPONSE, serialization=frame.serialization)
        return result.commit_log_end, answer
