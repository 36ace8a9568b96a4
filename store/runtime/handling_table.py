"""Handling table: how long the messages of each handler took, summed up over all processes.

A handler is a group and a topic. Each handler thread counts in the memory of its process
(:class:`rmqclient.store.Running`) and adds that to the slot of its handler at every heartbeat.
"""

from __future__ import annotations

from rmqclient.store import layout
from rmqclient.store.runtime.shared_state import SharedState, handling_slot_at

_AT = layout.HANDLING_SLOT.at


def slot_of(state: SharedState, group: str, topic: str) -> int:
    """Return the byte of a handler's slot, 0 when all are in use. The caller holds the table mutex."""
    key = group.encode(), topic.encode()
    count = state.handling_count
    for number in range(count):
        if _key(state, handling_slot_at(number)) == key:
            return handling_slot_at(number)
    if count == layout.HANDLING_SLOTS:
        return 0
    at = handling_slot_at(count)
    for name, text in zip(("group", "topic"), key, strict=True):
        state.put_bytes(at + _AT[name], text.ljust(128, b"\0"))
        state.words.store32(at + _AT[f"{name}_size"], len(text))
    state.handling_count = count + 1
    return at


def kept(state: SharedState) -> tuple[bytes, ...]:
    """Return the slots in use, for :func:`restore`."""
    content, size = memoryview(state.mapping), layout.HANDLING_SLOT.size
    slots = map(handling_slot_at, range(state.handling_count))
    return tuple(bytes(content[at : at + size]) for at in slots)


def restore(state: SharedState, slots: tuple[bytes, ...]) -> None:
    """Fill the table of a new runtime file."""
    for number, content in enumerate(slots):
        state.put_bytes(handling_slot_at(number), content)
    state.handling_count = len(slots)


def _key(state: SharedState, at: int) -> tuple[bytes, bytes]:
    fields = layout.HANDLING_SLOT.read(state.mapping, at)
    return fields["group"][: fields["group_size"]], fields["topic"][: fields["topic_size"]]
