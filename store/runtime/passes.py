"""Passes: what of the housekeeper's work failed when it last ran, and what it had to leave out, for ``rmq check``.

=================  ==================================================================================================
word               says
=================  ==================================================================================================
failing            bit per pass of :data:`rmqclient.store.layout.PASSES`: its last run failed. The next run that does
                   not fail clears it, in whatever process
stepped_over       items that a pass could do nothing with, so that those behind them go on
stepped_over_at    when the last of them was stepped over
=================  ==================================================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from rmqclient.store import clock, layout
from rmqclient.store.errors import StoreBusy, StoreClosed, StorePoisoned
from rmqclient.store.runtime.shared_state import SharedState

Result = TypeVar("Result")

_FAILING = layout.RUNTIME_HEADER.at["failing"]
_STEPPED_OVER = layout.RUNTIME_HEADER.at["stepped_over"]
_STEPPED_OVER_AT = layout.RUNTIME_HEADER.at["stepped_over_at"]


class Passes:
    """Notes how the passes of one open store go; safe for threads."""

    def __init__(self, state: SharedState) -> None:
        self._words = state.words

    def watched(self, name: str, run: Callable[[], Result]) -> Callable[[], Result]:
        """Return what runs a pass of :data:`~rmqclient.store.layout.PASSES` and notes whether it failed."""
        bit = 1 << layout.PASSES.index(name)

        @functools.wraps(run)
        def watched() -> Result:
            try:
                result = run()
            except (StoreBusy, StoreClosed, StorePoisoned):  # the next run may do it, or every sender is told
                raise
            except Exception:
                self._note(bit, failed=True)
                raise
            self._note(bit, failed=False)
            return result

        return watched

    def step_over(self, count: int = 1) -> None:
        """Note items that a pass leaves out for good. Each is named in the log."""
        self._words.store(_STEPPED_OVER_AT, clock.wall_ms())
        self._words.add(_STEPPED_OVER, count)

    def _note(self, bit: int, *, failed: bool) -> None:
        while bool((before := self._words.load(_FAILING)) & bit) != failed:
            if self._words.replace(_FAILING, before, before ^ bit):
                return
