"""Sends: requests 10 and 310 that the kernel answers, if their messages need no special treatment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from rmqclient.broker.address import Address
from rmqclient.broker.sending.hosts import packed
from rmqclient.broker.sending.incoming import IS_TRACED, REGION, added_properties, text_of
from rmqclient.broker.settings import ServeSettings
from rmqclient.broker.topics.system_topics import NOT_FOR_SENDERS
from rmqclient.broker.topics.topic_names import RETRY_PREFIX
from rmqclient.broker.topics.topics import Topics
from rmqclient.codecs import encode_body
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import MAX_FRAME_BYTES, Frame, encode
from rmqclient.remoting.table import response
from rmqclient.store import TIMER_TOPIC, Appender, Durability, MessageStore, PlainSends, layout
from rmqclient.store.append.admission import Never

TAIL: Final[Mapping[str, Any]] = {"MSG_REGION": REGION, "TRACE_ON": IS_TRACED}
"""Fields that every answer to a send has. [SendMessageProcessor]"""

_OPAQUE: Final = 1_111_111_111
_QUEUE_ID: Final = 1_222_222_222
_QUEUE_OFFSET: Final = 1_333_333_333_333_333_333
_MESSAGE_ID: Final = "message-id"
_PLACES: Final = {str(_OPAQUE): 1, _MESSAGE_ID: 2, str(_QUEUE_ID): 3, str(_QUEUE_OFFSET): 4}
_PREFIX_BYTES: Final = 8


class QuickSends:
    """Answers plain sends of all connections. For the thread of the event loop."""

    def __init__(self, store: MessageStore, topics: Topics, settings: ServeSettings) -> None:
        self._topics = topics
        self._appender = store.appenders.make(topics.open, encode_body, admission=Never)
        self.sends = plain_sends(
            store, self._appender, self.queues_of, settings.cluster_name, settings.limits.frame_bytes
        )
        """The kernel's handler; while it is not enabled, Python handles each send."""
        is_sync = settings.sync or store.config.durability is Durability.SYNC
        self.sends.is_enabled = not settings.read_only and not is_sync

    def take(self, data: bytes, at: int, remote: Address, local: Address) -> tuple[bytes, int]:
        """Answer the plain sends at the start of ``data``. See :data:`rmqclient.broker.net.connection.Quick`."""
        return self.sends.take(data, at, packed(remote), packed(local))

    def queues_of(self, topic: str) -> int:
        """Return how many queues of a topic the kernel may append to without Python.

        0 for a topic that has to be made, that clients may not send to, or that is a retry topic.
        """
        if topic.startswith(RETRY_PREFIX) or topic in NOT_FOR_SENDERS or topic == TIMER_TOPIC:
            return 0
        self._topics.check_name(topic)
        config = self._topics.config(topic)
        if config is None:
            return 0
        count = max(config.write_queue_count, config.read_queue_count)
        return min(count, len(self._topics.queues(topic)))


def plain_sends(
    store: MessageStore,
    appender: Appender,
    queues_of: Callable[[str], int],
    cluster: str,
    most_frame_bytes: int = MAX_FRAME_BYTES,
) -> PlainSends:
    """Return the kernel's handler of plain sends, for a store that does not flush each message.

    ``queues_of`` is :meth:`QuickSends.queues_of`. It is called again after any process has changed a topic.
    """
    request = Frame(RequestCode.SEND_MESSAGE_V2.value, opaque=_OPAQUE)
    answer = response(request, msgId=_MESSAGE_ID, queueId=_QUEUE_ID, queueOffset=_QUEUE_OFFSET, **TAIL)
    return PlainSends(
        appender,
        store.state.mapping,
        layout.RUNTIME_HEADER.at["membership_word"],
        queues_of,
        added=text_of(added_properties(cluster)),
        template=template_of(answer),
        language=answer.language,
        version=answer.version,
        tail=list(TAIL.items()),
        most_frame_bytes=most_frame_bytes,
    )


def template_of(answer: Frame) -> list[tuple[bytes, int]]:
    """Return the parts of an answer's JSON between its values, each with the number of the value that follows."""
    header = encode(answer)[_PREFIX_BYTES:].decode()
    parts = re.split("(" + "|".join(_PLACES) + ")", header)
    values = [_PLACES[value] for value in parts[1::2]]
    return [(text.encode(), follows) for text, follows in zip(parts[::2], [*values, 0], strict=True)]
