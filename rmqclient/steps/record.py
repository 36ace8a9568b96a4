"""Record: one stored step, which is a message of the topic ``%STEPS%group``.

=======================  ==========================================================================================
part of the message      content
=======================  ==========================================================================================
key                      the id of the step's message
``RMQ_STEP``             the name of the step
``RMQ_STEP_KIND``        ``result``, ``sleep``, ``wait``, ``signal`` or ``timeout``
``RMQ_STEP_NUMBER``      its number among the steps of the call that stored it, from 1; 0 for a signal
``RMQ_STEP_FORM``        the form of the body: ``bytes``, ``text`` or ``json``
``RMQ_STEP_PLACE``       of a record that was stored again: commit log offset of the first one
body                     the result; the end of a sleep or a wait, in ms since 1970; the payload of a signal
=======================  ==========================================================================================

Of several records with one kind and name, the first counts; likewise of a signal and a timeout of one name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from rmqclient.errors import StepRejected
from rmqclient.message import Message, ReceivedMessage

Kind: TypeAlias = Literal["result", "sleep", "wait", "signal", "timeout"]
Form: TypeAlias = Literal["bytes", "text", "json"]
Key: TypeAlias = tuple[str, str]
"""Kind and name of a record, which identify it."""

MOST_NAME_BYTES = 100

_NAME, _KIND, _NUMBER = "RMQ_STEP", "RMQ_STEP_KIND", "RMQ_STEP_NUMBER"
_FORM, _PLACE = "RMQ_STEP_FORM", "RMQ_STEP_PLACE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One stored step."""

    kind: Kind
    name: str
    number: int = 0
    form: Form = "json"
    body: bytes = b"null"
    place: int = -1
    """Commit log offset of its first record; -1 before it is stored."""
    stored_ms: int = 0
    """Store time of its last record, in ms since 1970."""

    @property
    def key(self) -> Key:
        """Its key. A signal and a timeout have the same key, because they end the same wait."""
        return "answer" if self.kind in ("signal", "timeout") else self.kind, self.name

    @classmethod
    def of(cls, message: ReceivedMessage) -> Self | None:
        """Return the record in a message of the topic; None for any other message."""
        properties = message.properties
        if properties.get(_KIND) not in ("result", "sleep", "wait", "signal", "timeout"):
            return None
        return cls(
            kind=properties[_KIND],  # type: ignore[arg-type] # looked at above
            name=properties.get(_NAME, ""),
            number=int(properties.get(_NUMBER, "0")),
            form=properties.get(_FORM, "json"),  # type: ignore[arg-type] # whatever stands there is compared with these
            body=message.body,
            place=int(properties.get(_PLACE, message.commit_log_offset)),
            stored_ms=message.store_timestamp,
        )

    def message(self, topic: str, message_id: str) -> Message:
        """Return the message to store."""
        properties = {_NAME: self.name, _KIND: self.kind, _NUMBER: str(self.number), _FORM: self.form}
        if self.place >= 0:
            properties[_PLACE] = str(self.place)
        return Message(topic, self.body, keys=[message_id], properties=properties)


def check_name(name: object) -> str:
    """Return a valid name of a step or a signal. Raises StepRejected."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise StepRejected(f"step {name!r}: a name is a text of printable characters, such as 'charge'")
    if len(name.encode()) > MOST_NAME_BYTES:
        raise StepRejected(
            f"step {name[:40]!r}...: its name has {len(name.encode())} bytes, and at most {MOST_NAME_BYTES} fit: "
            "shorten it"
        )
    return name
