"""Pull: one request for messages of a queue, and its progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqclient.broker.pulling.queue_reader import Look, LookStatus
from rmqclient.broker.pulling.selection import Selection
from rmqclient.broker.request import Request
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue

COMMITS: Final = 1
"""Flag of a pull: commit ``commitOffset``. [PullSysFlag.FLAG_COMMIT_OFFSET]"""

MAY_WAIT: Final = 2
"""Flag of a pull: the answer may wait for a message. [FLAG_SUSPEND]"""

HAS_SUBSCRIPTION: Final = 4
"""Flag of a pull: it has a subscription. [FLAG_SUBSCRIPTION]"""

HAS_FILTER_CLASS: Final = 8
"""Flag of a pull: it filters by a Java class. [FLAG_CLASS_FILTER]"""

_CODES: Final = {
    LookStatus.FOUND: ResponseCode.SUCCESS,
    LookStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    LookStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    LookStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    LookStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    LookStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


@dataclass(slots=True, eq=False)
class Pull:
    """A pull that passed the checks. ``position`` is the next offset to look at; a held pull advances it."""

    request: Request
    group: str
    queue: MessageQueue
    offset: int
    position: int
    most: int
    """Messages that the client takes, at most."""
    most_bytes: int
    selection: Selection
    wait_s: float
    """Seconds for which the answer may wait; 0 for a pull that may not be held."""
    suggested: int = 0
    """Id of the broker that the client should ask next."""
    is_allowed: bool = True
    """Whether the client had the queue at the last check."""

    def answer(self, look: Look) -> Frame:
        """Return the answer for a look. An answer without messages has the four offsets, too."""
        code = _code(look, self.offset)
        fields: dict[str, object] = {
            "suggestWhichBrokerId": self.suggested,
            "nextBeginOffset": look.next_offset,
            "minOffset": look.min_offset,
            "maxOffset": look.max_offset,
        }
        if code == ResponseCode.SUCCESS:
            return self.request.success(look.body, look.status.name, **fields)
        return self.request.failure(code, look.status.name, **fields)


def _code(look: Look, offset: int) -> ResponseCode:
    """As PullMessageProcessor: at an empty queue offset 0 finds nothing yet, and any other offset is moved."""
    if look.status in (LookStatus.NO_MESSAGE_IN_QUEUE, LookStatus.NO_MATCHED_LOGIC_QUEUE):
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[look.status]
