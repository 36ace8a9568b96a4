"""Sends: requests 10 and 310 that the kernel answers, if nothing special is to be thought of their messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import MAX_FRAME_BYTES, Frame, encode
from rmqclient.remoting.table import response
from rmqclient.store import Appender, MessageStore, PlainSends, layout

TAIL: Final[Mapping[str, Any]] = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
"""Fields that every answer to a send has. [SendMessageProcessor]"""

_OPAQUE: Final = 1_111_111_111
_QUEUE_ID: Final = 1_222_222_222
_QUEUE_OFFSET: Final = 1_333_333_333_333_333_333
_MESSAGE_ID: Final = "message-id"
_PLACES: Final = {str(_OPAQUE): 1, _MESSAGE_ID: 2, str(_QUEUE_ID): 3, str(_QUEUE_OFFSET): 4}
_PREFIX_BYTES: Final = 8


def plain_sends(
    store: MessageStore,
    appender: Appender,
    queues_of: Callable[[str], int],
    cluster: str,
    most_frame_bytes: int = MAX_FRAME_BYTES,
) -> PlainSends:
    """Return what answers plain sends to a store that does not flush each message.

    ``queues_of`` returns how many queues of a topic such messages may go to, and 0 for a topic that has to be thought
    about. It is asked again after any process has changed a topic.
    """
    request = Frame(RequestCode.SEND_MESSAGE_V2.value, opaque=_OPAQUE)
    answer = response(request, msgId=_MESSAGE_ID, queueId=_QUEUE_ID, queueOffset=_QUEUE_OFFSET, **TAIL)
    return PlainSends(
        appender,
        store.state.mapping,
        layout.RUNTIME_HEADER.at["membership_word"],
        queues_of,
        cluster=cluster,
        template=template_of(answer),
        language=answer.language,
        version=answer.version,
        tail=list(TAIL.items()),
        most_frame_bytes=most_frame_bytes,
    )


def template_of(answer: Frame) -> list[tuple[bytes, int]]:
    """Return the texts of an answer in JSON between its values, each with the number of the value that follows."""
    header = encode(answer)[_PREFIX_BYTES:].decode()
    parts = re.split("(" + "|".join(_PLACES) + ")", header)
    values = [_PLACES[value] for value in parts[1::2]]
    return [(text.encode(), follows) for text, follows in zip(parts[::2], [*values, 0], strict=True)]
