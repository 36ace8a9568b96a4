"""Releaser: gives the disk blocks of removed files back.

A removed file keeps its blocks while any process has it mapped, and an idle consumer keeps the file of the last message
that it took mapped for days. So every process that has a store open has a thread that sleeps until files are removed,
and then maps zeros over them (``Mapping.detach``). A reader of such a mapping finds no record, looks at the oldest
offset, and knows that the message was removed.

Where no housekeeper's thread runs, as in a worker and in `rmq tail`, it also looks twice a second whether the directory
is still in place, and at the clock (:mod:`rmqclient.store.runtime.awake`).
"""

from __future__ import annotations

import weakref
from contextlib import suppress

from rmqclient.store import layout
from rmqclient.store.errors import StoreError
from rmqclient.store.files.file_queue import MappingCache
from rmqclient.store.kernel._kernel import Words
from rmqclient.store.native_threads import threading
from rmqclient.store.runtime.awake import LOOKS_EVERY_MS, Awake
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.threads.guarded import GuardedThread

REMOVED_WORD = layout.RUNTIME_HEADER.at["removed_word"]
_LONGEST_SLEEP_MS = 5_000


class Releaser:
    """The thread of one open store. It ends with :meth:`close`, or when the mappings are garbage.

    With ``looks`` it calls ``check_in_place`` of the mappings twice a second, which ends the use of a replaced store,
    and sees when the process stood still.
    """

    def __init__(self, state: SharedState, mappings: MappingCache, *, looks: bool) -> None:
        self._words = state.words
        self._closed = threading.Event()
        seen = state.words.load32(REMOVED_WORD)  # now, before a file is mapped: the thread may begin much later
        self._thread = GuardedThread(
            target=_run,
            args=(state.words, seen, weakref.ref(mappings), state.awake if looks else None, self._closed),
            name="rmq-releaser",
        )

    def start(self) -> None:
        """Start the thread. Raises LimitReached."""
        self._thread.start()

    def close(self) -> None:
        """Stop; returns when the thread has ended."""
        self._closed.set()
        self._words.signal(REMOVED_WORD)
        self._thread.join()


def _run(
    words: Words, seen: int, mappings: weakref.ref[MappingCache], awake: Awake | None, closed: threading.Event
) -> None:
    if awake is not None:
        awake.begin()
    while not closed.is_set() and mappings() is not None:
        words.wait(REMOVED_WORD, seen, _LONGEST_SLEEP_MS if awake is None else LOOKS_EVERY_MS)
        if awake is not None and not closed.is_set():
            awake.look()
            _look(mappings())
        if words.load32(REMOVED_WORD) != seen:
            seen = words.load32(REMOVED_WORD)
            _release(mappings())


def _look(mappings: MappingCache | None) -> None:
    if mappings is not None:
        with suppress(StoreError):  # it has been logged, and is raised where the store is used
            mappings.check_in_place()


def _release(mappings: MappingCache | None) -> None:
    if mappings is not None:
        mappings.release_removed()
