"""Answers: what a broker's answer to a pull says about the offsets that were asked for.

===============================  =====================================================================================
answer                           meaning
===============================  =====================================================================================
SUCCESS                          records, up to ``nextBeginOffset``
PULL_RETRY_IMMEDIATELY           no record up to ``nextBeginOffset``: none has a wanted tag, or they are gone
PULL_NOT_FOUND                   the same, as for a hole in the queue; or the queue ends here
PULL_OFFSET_MOVED                the queue begins behind the offset, or ends before it
===============================  =====================================================================================
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rmqclient.filters.tag import EVERYTHING
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError, error_of
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import response_field, response_fields

_KNOWN: Final = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
)
_GONE: Final = frozenset(("MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL"))  # GetMessageStatus


class Answer(NamedTuple):
    """A broker's answer about the queue offsets from ``start`` to ``stop``, exclusive."""

    start: int
    stop: int
    records: bytes | memoryview
    lost: str
    """The reason for which records of this range are lost; empty if no record is lost."""
    following: int
    """Offset of the broker's next record, at ``stop`` or above."""


def found(start: int, stop: int, following: int, records: memoryview) -> Answer:
    """Return a SUCCESS about the offsets from ``start`` to ``stop``, whose ``nextBeginOffset`` is ``following``."""
    if following > start:
        return Answer(start, min(following, stop), records, "", following)
    return Answer(start, stop, b"", f"the broker goes on at {following}", stop)


def answer_of(
    frame: Frame, records: memoryview, start: int, stop: int, tags: str, broker_name: str
) -> Answer | AnswerError:
    """Return any answer about the offsets from ``start`` to ``stop``, or its error.

    ``tags`` is the subscription that was asked for.
    """
    if frame.code not in _KNOWN:
        return error_of(frame, broker_name)
    following = response_field(RequestCode.PULL_MESSAGE, frame, "nextBeginOffset")
    if frame.code == ResponseCode.SUCCESS and following > start:
        return Answer(start, min(following, stop), records, "", following)
    fields = response_fields(RequestCode.PULL_MESSAGE, frame)
    oldest, end = fields["minOffset"], fields["maxOffset"]
    if oldest > start:
        return Answer(start, min(oldest, stop), b"", f"removed: the oldest message is {oldest}", oldest)
    if end <= start or following <= start:
        return Answer(start, stop, b"", f"the queue ends at {end}", stop)
    is_selected = tags != EVERYTHING and frame.remark not in _GONE
    lost = "" if is_selected else f"the broker has no record of it ({frame.remark})"
    return Answer(start, min(following, stop), b"", lost, following)
