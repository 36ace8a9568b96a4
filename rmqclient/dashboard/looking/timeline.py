"""Timeline: the life of one message, from its birth to what each group made of it.

Copies of a message keep its id. So its retries and its dead letter are found by the id in the topics of each group, and
its failures stand in the history that the last copy carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmqclient.admin.life import standings
from rmqclient.backend import Backend
from rmqclient.errors import QueueError
from rmqclient.failures import dead_letters
from rmqclient.failures.failure import history
from rmqclient.message import ReceivedMessage
from rmqclient.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, group_and_member
from rmqclient.store.observe.summary import Group

_END_OF_TIME = (1 << 63) - 1
_COPIES = 64


@dataclass(frozen=True, slots=True)
class Event:
    """One step in the life of a message."""

    at_ms: int | None
    """None for how it stands now."""
    what: str
    detail: str
    tone: str
    """``good``, ``busy``, ``warn``, ``bad`` or ``calm``."""
    trace: str = ""
    place: tuple[str, int, int] | None = None
    """Topic, queue id and queue offset of the record that tells of it."""


def timeline(backend: Backend, message: ReceivedMessage) -> list[Event]:
    """Return the events in their order, and then how each group of the topic stands with the message."""
    message = _first_of(backend, message)
    place = message.topic, message.queue_id, message.queue_offset
    events = [
        Event(message.born_timestamp, "born", "a producer made it", "calm"),
        Event(
            message.store_timestamp,
            "stored",
            "the first record of it",
            "good",
            place=place,
        ),
    ]
    states: list[Event] = []
    for group, stands in _groups(backend).items():
        copies = _copies(backend, RETRY_PREFIX + group, message)
        letters = _copies(backend, DEAD_LETTER_PREFIX + group, message)
        events += _of_copies(group, copies, letters)
        states += _standing(stands, message, copies, letters) if stands else ()
        states += _settled(backend, group, letters)
    return sorted(events, key=lambda event: event.at_ms or 0) + states


def _first_of(backend: Backend, message: ReceivedMessage) -> ReceivedMessage:
    """Return the record of which a retry or a dead letter is a copy; the message itself if that is gone."""
    origin = message.properties.get("ORIGIN_MESSAGE_ID")
    found = backend.messages.by_id(origin) if origin else None
    return message if found is None else found


def _groups(backend: Backend) -> dict[str, Group | None]:
    found: dict[str, Group | None] = {each.group: each for each in backend.groups.all()}
    for topic in backend.topics.names():  # of groups whose offsets are gone, too
        if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            found.setdefault(topic.removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX), None)
    return found


def _copies(backend: Backend, topic: str, message: ReceivedMessage) -> list[ReceivedMessage]:
    try:
        found = backend.messages.by_key(topic, message.message_id, 0, _END_OF_TIME, _COPIES)
    except QueueError:  # the group has no such topic
        return []
    return [each for each in reversed(found) if each.message_id == message.message_id]


def _of_copies(group: str, copies: list[ReceivedMessage], letters: list[ReceivedMessage]) -> Iterator[Event]:
    last = [*copies, *letters][-1:]
    for failure in history(last[0].properties) if last else []:
        error = f"{failure.get('error')}: {failure.get('text')}"
        worker = f", {failure['worker']}" if failure.get("worker") else ""
        at = failure.get("at")
        yield Event(
            at if isinstance(at, int) else None,
            f"attempt {failure.get('attempt')} failed",
            f"{group}{worker}: {error}",
            "bad",
            str(failure.get("trace", "")),
        )
    for copy in copies:
        place = copy.topic, copy.queue_id, copy.queue_offset
        yield Event(
            copy.store_timestamp, "retried", f"{group}: attempt {copy.reconsume_times + 1}", "busy", place=place
        )
    for letter in letters:
        place = letter.topic, letter.queue_id, letter.queue_offset
        detail = f"{group}: given up after {letter.reconsume_times} attempts"
        yield Event(letter.store_timestamp, "dead letter", detail, "bad", place=place)


def _standing(
    group: Group, message: ReceivedMessage, copies: list[ReceivedMessage], letters: list[ReceivedMessage]
) -> Iterator[Event]:
    for name, standing in standings(group, message):
        shown = ", ".join(filter(None, group_and_member(name)))
        if standing.what in _TONES:
            yield Event(None, standing.what, f"{shown}: {standing.said}", _TONES[standing.what])
        elif letters:
            yield Event(None, "given up", f"{shown}: it is a dead letter", "bad")
        elif copies:
            yield Event(None, "sent back", f"{shown}: {len(copies)} retries were made of it", "warn")
        else:
            yield Event(None, standing.what, f"{shown}: {standing.said}", "good")
    for copy in copies:
        for name, standing in standings(group, copy):
            if standing.what in ("runs", "hangs"):
                yield Event(None, standing.what, f"{name}: its retry {standing.said}", _TONES[standing.what])


_TONES = {"runs": "busy", "hangs": "bad", "waits": "busy", "skipped": "calm"}


def _settled(backend: Backend, group: str, letters: list[ReceivedMessage]) -> Iterator[Event]:
    among = frozenset((each.topic, each.queue_offset, each.message_id) for each in letters)
    if among:
        for letter in dead_letters.select(backend, group, dead_letters.Selection(among=among, done=True)):
            if letter.done:
                yield Event(None, letter.done, f"{group}: the dead letter was {letter.done} by hand", "calm")
