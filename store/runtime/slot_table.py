"""Slot table: one table of the runtime file, slot by slot, and the byte locks of those that own its slots.

A slot is a record of fixed layout (:mod:`rmqclient.store.layout`). An *owned* slot belongs to one process at a time,
which holds the slot's byte of the lock file as long as it lives; the kernel releases the byte at any death, so a free
byte is the death notice.
"""

from __future__ import annotations

from typing import Any

from rmqclient.store import layout
from rmqclient.store.files.file_lock import LockFile
from rmqclient.store.runtime.shared_state import SharedState, slot_at


class SlotTable:
    """Reads and writes the fields of one table's slots. Raises TableFull for a slot beyond the end of the table."""

    def __init__(self, state: SharedState, slot: layout.Layout, table_at: int, slots: int) -> None:
        self.slots = slots
        """How many slots the table has."""
        self._state = state
        self._words = state.words
        self._layout = slot
        self._table_at = table_at
        self._sizes = {field.name: field.size for field in slot.fields}

    def at(self, number: int, field: str) -> int:
        """Return the byte of the runtime file at which a field of a slot begins."""
        return slot_at(self._table_at, self._layout, self.slots, number) + self._layout.at[field]

    def load(self, number: int, field: str) -> int:
        """Read one word, of 4 or 8 bytes as the layout declares it."""
        load = self._words.load if self._sizes[field] == 8 else self._words.load32
        return load(self.at(number, field))

    def store(self, number: int, field: str, value: int) -> None:
        """Write one word, of 4 or 8 bytes as the layout declares it."""
        store = self._words.store if self._sizes[field] == 8 else self._words.store32
        store(self.at(number, field), value)

    def read(self, number: int) -> dict[str, Any]:
        """Return all fields of a slot, by name. They are not of one moment."""
        return self._layout.read(self._state.mapping, slot_at(self._table_at, self._layout, self.slots, number))

    def text(self, number: int, field: str) -> bytes:
        """Return a text: as many bytes of the field as its ``<field>_size`` says, and no more than it has."""
        size = min(self._sizes[field], self.load(number, f"{field}_size"))
        at = self.at(number, field)
        return bytes(memoryview(self._state.mapping)[at : at + size])

    def put_text(self, number: int, field: str, content: bytes) -> None:
        """Write a text and its size, to a slot that nobody reads yet."""
        self._state.put_bytes(self.at(number, field), content)
        self.store(number, f"{field}_size", len(content))

    def column(self, field: str, count: int) -> list[int]:
        """Return one 8-byte word of the first ``count`` slots, as :meth:`SharedState.column`."""
        return self._state.column(self.at(0, field), self._layout.size, count)


class OwnedSlots(SlotTable):
    """A table whose slots have owners: the owner of slot ``n`` holds byte ``first_byte + n`` of the lock file."""

    def __init__(
        self, state: SharedState, slot: layout.Layout, table_at: int, slots: int, lock: LockFile, first_byte: int
    ) -> None:
        super().__init__(state, slot, table_at, slots)
        self._lock = lock
        self._first_byte = first_byte

    def own(self, number: int) -> bool:
        """Take the byte of a slot; False while another process holds it. This process may take one twice."""
        return self._lock.try_exclusive(self._first_byte + number)

    def disown(self, number: int) -> None:
        """Release the byte of a slot."""
        self._lock.unlock(self._first_byte + number)

    def owns(self, number: int) -> bool:
        """Tell whether this process holds the byte of a slot."""
        return self._lock.holds(self._first_byte + number)

    def has_owner(self, number: int) -> bool:
        """Tell whether a living process, this one or another, holds the byte of a slot."""
        return self.owns(number) or self._lock.holder(self._first_byte + number) is not None

    def is_alive(self, number: int, incarnation: int) -> bool:
        """Tell whether the owner that took the slot as ``incarnation`` still runs, stopped or not."""
        return self.load(number, "incarnation") == incarnation and self.has_owner(number)

    def free(self, number: int, incarnation: int) -> None:
        """End the incarnation of a dead owner, unless another process has done so already."""
        self._words.replace(self.at(number, "incarnation"), incarnation, incarnation + 1)
