"""Translation: places and times of a recording, as they are in the store of the replay."""

from __future__ import annotations

import dataclasses
import time

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import ReceivedMessage
from rmqclient.store.wire import parse_offset_id

_TIMES = {"timestamp", "beginTimestamp", "endTimestamp", "beginTime", "endTime"}
_BORN: dict[int, str] = {
    RequestCode.SEND_MESSAGE: "bornTimestamp",
    RequestCode.SEND_MESSAGE_V2: "g",
    RequestCode.SEND_BATCH_MESSAGE: "g",
}
_OFFSETS = {"offset", "commitLogOffset"}
_BY_OFFSET = {RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION}
_TODAY = range(1_700_000_000_000, 2_100_000_000_000)


class Translation:
    """Knows for each record of the recording where it is now. It learns from pairs of answers."""

    def __init__(self, begun_s: float) -> None:
        self._offsets: dict[int, int] = {}
        self._half_offsets: dict[int, int] = {}
        self._later_ms = int((time.time() - begun_s) * 1000)

    def learn_sent(self, recorded: Frame, live: Frame) -> None:
        """Learn from the answers to a send where its messages are."""
        for was, now in zip(*(frame.fields.get("msgId", "").split(",") for frame in (recorded, live)), strict=False):
            if was and now:
                place = parse_offset_id(was).commit_log_offset
                self._offsets[place] = parse_offset_id(now).commit_log_offset
                self._half_offsets[place] = int(live.fields["queueOffset"])

    def learn_found(self, recorded: list[ReceivedMessage], live: list[ReceivedMessage]) -> None:
        """Learn from messages that were found, which are the same ones."""
        for was, now in zip(recorded, live, strict=False):
            self._offsets[was.commit_log_offset] = now.commit_log_offset

    def learn_checked(self, recorded: Frame, live: Frame) -> None:
        """Learn from the question about a transaction where its half message is."""
        place = int(recorded.fields["commitLogOffset"])
        self._offsets[place] = int(live.fields["commitLogOffset"])
        self._half_offsets[place] = int(live.fields["tranStateTableOffset"])

    def request(self, frame: Frame, suspend_ms: int | None) -> Frame:
        """Return a request with what it names as it is now; with ``suspend_ms`` a pull is held for so long at most."""
        fields = dict(frame.fields)
        if frame.code in _BY_OFFSET:
            self._place(fields)
        for name in (_TIMES | {_BORN.get(frame.code, "")}) & fields.keys():
            if fields[name].isdigit() and int(fields[name]) in _TODAY:
                fields[name] = str(int(fields[name]) + self._later_ms)
        if frame.code == RequestCode.CONSUME_MESSAGE_DIRECTLY and len(fields.get("msgId", "")) == 32:
            was = int(fields["msgId"][16:], 16)
            fields["msgId"] = fields["msgId"][:16] + f"{self._offsets.get(was, was):016X}"
        if suspend_ms is not None and "suspendTimeoutMillis" in fields:
            fields["suspendTimeoutMillis"] = str(suspend_ms)
        return dataclasses.replace(frame, fields=fields)

    def _place(self, fields: dict[str, str]) -> None:
        for name in _OFFSETS & fields.keys():
            was = int(fields[name])
            if "tranStateTableOffset" in fields and was in self._half_offsets:
                fields["tranStateTableOffset"] = str(self._half_offsets[was])
            fields[name] = str(self._offsets.get(was, was))
