"""Replay: the frames of a session's clients, in their order, and what the server answers."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field

from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame, encode
from tests.broker.replay.comparison import Difference, difference, records_of
from tests.broker.replay.connections import Connections
from tests.broker.replay.preparation import frame_of
from tests.broker.replay.translation import Translation
from tests.remoting.recordings import Closed, RecordedFrame

ANSWER_S = 30.0
"""For an answer; a message of delay level 3 comes after 10 s, and a held pull with it."""

REQUEST_S = 30.0
"""For a request of the server: it asks about a transaction after some seconds."""

ANNOUNCED_S = 10.0
"""For one that may be missing, for a reason."""

LONGEST_DELAY_S = 12.0
"""Of a message of delay level 3, and some more."""

SHORT_MS = 300
"""For a pull that found nothing in the recording, where it was held for 15 or 20 s."""

_SENDS = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
_FINDING = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
_ANNOUNCED = {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED}
"""Requests of the server that clients do not wait for; that they come is compared with patience."""


@dataclass(slots=True)
class Replayed:
    """How a session went."""

    equal: int = 0
    differences: list[Difference] = field(default_factory=list)


class Replay:
    """One session on one server."""

    def __init__(self, session: str, events: tuple[RecordedFrame | Closed, ...], connections: Connections) -> None:
        self._session = session
        self._events = events
        self._connections = connections
        frames = [event for event in events if isinstance(event, RecordedFrame)]
        self._translation = Translation(frames[0].time_s)
        self._asked: dict[tuple[int, int], Frame] = {}
        self._pushed: dict[tuple[int, int], Frame] = {}
        self._empty = _pulls_that_found_nothing(events)
        self._delayed_s: tuple[float, float] | None = None
        self._result = Replayed()

    def run(self) -> Replayed:
        """Send what the clients sent, each frame when all before it was sent and answered as in the recording."""
        for index, event in enumerate(self._events):
            if isinstance(event, Closed):
                self._connections.close(event.connection)
                continue
            frame = frame_of(event)
            key = event.connection, frame.opaque
            if event.is_from_client:
                self._keep_pace(frame, event.time_s)
                self._send(key, frame, index)
            elif frame.is_response:
                self._compare_answer(key, frame, event.body)
            else:
                self._compare_request(key, frame, event.body)
        return self._result

    def _send(self, key: tuple[int, int], frame: Frame, index: int) -> None:
        if frame.is_response:
            if key in self._pushed:
                answer = dataclasses.replace(frame, opaque=self._pushed.pop(key).opaque)
                self._connections.send(key[0], encode(answer))
            return
        self._asked[key] = frame
        suspend_ms = SHORT_MS if index in self._empty else None
        self._connections.send(key[0], encode(self._translation.request(frame, suspend_ms)))

    def _keep_pace(self, frame: Frame, recorded_s: float) -> None:
        """Be no faster than the recording while a message is delayed: what follows may be about that message."""
        if self._delayed_s is not None:
            recorded_then_s, then_s = self._delayed_s
            time.sleep(min(max(0.0, recorded_s - recorded_then_s - (time.monotonic() - then_s)), LONGEST_DELAY_S))
        properties = frame.fields.get("i") or frame.fields.get("properties") or ""
        if frame.code == RequestCode.CONSUMER_SEND_MSG_BACK or f"DELAY{chr(1)}" in properties:
            self._delayed_s = recorded_s, time.monotonic()
        elif self._delayed_s is not None and recorded_s - self._delayed_s[0] > LONGEST_DELAY_S:
            self._delayed_s = None

    def _compare_answer(self, key: tuple[int, int], recorded: Frame, body: bytes | None) -> None:
        if key not in self._asked:
            return
        asked = self._asked.pop(key)
        code, topic = asked.code, asked.fields.get("topic", "")
        live = self._connections.answer(*key, ANSWER_S)
        if live is None:
            self._add(Difference(self._session, code, "missing", f"answer {recorded.code}", "none", topic))
            return
        self._add(difference(self._session, code, recorded, live, body, topic))
        if recorded.code == live.code == ResponseCode.SUCCESS:
            if code in _SENDS:
                self._translation.learn_sent(recorded, live)
            if code in _FINDING and body is not None:
                self._translation.learn_found(records_of(body), records_of(live.body))

    def _compare_request(self, key: tuple[int, int], recorded: Frame, body: bytes | None) -> None:
        live = self._connections.request(
            key[0], recorded.code, ANNOUNCED_S if recorded.code in _ANNOUNCED else REQUEST_S
        )
        if live is None:
            self._add(Difference(self._session, recorded.code, "missing", "a request of the broker", "none"))
            return
        self._pushed[key] = live
        self._add(difference(self._session, recorded.code, recorded, live, body))
        if recorded.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._translation.learn_checked(recorded, live)

    def _add(self, found: Difference | None) -> None:
        if found is None:
            self._result.equal += 1
        else:
            self._result.differences.append(found)


def _pulls_that_found_nothing(events: tuple[RecordedFrame | Closed, ...]) -> set[int]:
    """Return the places of the pulls whose answer says that nothing came while they were held."""
    asked: dict[tuple[int, int], int] = {}
    found: set[int] = set()
    for index, event in enumerate(events):
        if isinstance(event, Closed) or event.request_code not in _FINDING:
            continue
        key = event.connection, event.header["opaque"]
        if event.is_response and key in asked and event.header["code"] == ResponseCode.PULL_NOT_FOUND:
            found.add(asked.pop(key))
        elif not event.is_response:
            asked[key] = index
    return found
