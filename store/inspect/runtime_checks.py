"""Runtime checks: what is wrong with the words of the runtime file, for :mod:`rmqclient.store.inspect.verify`.

Each check has the number of its invariant there. Other processes may be changing the words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from rmqclient.store import layout
from rmqclient.store.inspect.found import LOOKS, Found, Problem, bounds_of
from rmqclient.store.runtime.group_table import GroupQueueSlot, GroupTable
from rmqclient.store.runtime.shared_state import FILE_NAME, SharedState
from rmqclient.store.waiting.timer_bits import QUEUE as TIMER_QUEUE
from rmqclient.store.waiting.timer_bits import WORD, set_bits_to
from rmqclient.store.waiting.transaction_log import GROUP as TRANSACTION_GROUP

TIMER_WORDS = (layout.TIMER_HEADER.at["done_to"], layout.TIMER_HEADER.at["clearing_to"])


def check_committed_offsets(found: Found) -> Iterator[Problem]:
    """8: a move whose owner died stays until the next acknowledgement, so a short one is no problem."""

    def problem_of(state: SharedState, slot: GroupQueueSlot) -> str:
        oldest = bounds_of(state, slot.queue_slot).start
        return move_problem(slot.committed_offset, slot.load("advance_to"), oldest)

    return _lasting(8, found, "advance_to", problem_of)


def move_problem(committed_offset: int, advance_to: int, min_offset: int = 0) -> str:
    """Say what is wrong with a move of ``committed_offset``; empty if nothing is.

    Over removed messages, those below ``min_offset``, a move may have any length.
    """
    if committed_offset > advance_to:
        return f"advance_to {advance_to} is below committed_offset {committed_offset}"
    if advance_to - max(committed_offset, min(advance_to, min_offset)) > layout.ACK_WINDOW:
        return f"advance_to {advance_to} is more than {layout.ACK_WINDOW} above committed_offset {committed_offset}"
    return ""


def check_acknowledged_messages(found: Found) -> Iterator[Problem]:
    """9: a bit left of a finished message looks like that of a message 2,048 later, which no member can have taken."""

    def problem_of(state: SharedState, slot: GroupQueueSlot) -> str:
        committed, bits = slot.committed_offset, slot.acknowledged_bits()
        high = bounds_of(state, slot.queue_slot).stop
        return bits_problem(committed, bits, high) if slot.committed_offset == committed else ""

    return _lasting(9, found, "acknowledged", problem_of)


def bits_problem(committed_offset: int, bits: int, max_offset: int) -> str:
    """Say what is wrong with an acknowledgement bitmap; empty if nothing is."""
    for offset in range(max(committed_offset, max_offset), committed_offset + layout.ACK_WINDOW):
        if bits >> offset % layout.ACK_WINDOW & 1:
            finished = offset - layout.ACK_WINDOW
            return f"the bit of message {finished} is set, below committed_offset {committed_offset}"
    return ""


def check_frontiers(found: Found) -> Iterator[Problem]:
    """10: each frontier is read after those that must not be above it, and never falls below their values."""
    if found.reader.state is None:
        return
    names = ("flushed_to", "published_to", "written_to")
    values = [getattr(found.reader.state, name) for name in names]
    for (lower, low), (upper, high) in pairwise(zip(names, values, strict=True)):
        if low > high:
            at = layout.RUNTIME_HEADER.at[upper]
            yield Problem(10, found.reader.root / FILE_NAME, at, f"{upper} {high} is below {lower} {low}")


def check_timer(found: Found) -> Iterator[Problem]:
    """13: the queue's max offset is read last, because an append may move it meanwhile."""
    state, slot = found.reader.state, found.slots.get(TIMER_QUEUE)
    if state is None:
        return
    done_to, clearing_to = (state.words.load(layout.TIMER_AT + at) for at in TIMER_WORDS)
    set_to = set_bits_to(state, done_to)
    high = 0 if slot is None else bounds_of(state, slot).stop
    if problem := timer_problem(done_to, clearing_to, set_to, high):
        yield Problem(13, found.reader.root / FILE_NAME, layout.TIMER_AT, problem)


def timer_problem(done_to: int, clearing_to: int, set_to: int, max_offset: int) -> str:
    """Say what is wrong with the timer's bits, the last set one of which is below ``set_to``; empty if nothing is."""
    if done_to % WORD or clearing_to % WORD:
        return f"done_to {done_to} or clearing_to {clearing_to} is not a multiple of {WORD}"
    if not done_to <= clearing_to <= max_offset:
        return f"done_to {done_to}, clearing_to {clearing_to} and the max offset {max_offset} are not in this order"
    if set_to > max_offset:
        return f"the bit of message {set_to - 1} is set, and the next message is {max_offset}"
    return ""


def check_counters(found: Found) -> Iterator[Problem]:
    """17: while somebody has the mutex, or an owner has died with it, what is marked may wait for being counted."""

    def problem_of(_: SharedState, slot: GroupQueueSlot) -> str:
        is_settled = not slot.mutex.owner and not slot.load("orphaned") and slot.group != TRANSACTION_GROUP
        finished, counted = slot.committed_offset + slot.acknowledged_bits().bit_count(), slot.counted_to()
        is_still = slot.load("advance_to") == slot.committed_offset and not slot.mutex.owner
        return counters_problem(finished, counted) if is_settled and is_still else ""

    return _lasting(17, found, "counted_from", problem_of)


def counters_problem(finished: int, counted: int) -> str:
    """Say what is wrong with the counters of a group-queue; empty if nothing is."""
    if finished == counted:
        return ""
    return f"finished messages reach to {finished}, and counted ones to {counted}"


def _lasting(
    invariant: int, found: Found, name: str, problem_of: Callable[[SharedState, GroupQueueSlot], str]
) -> Iterator[Problem]:
    """Report each group-queue that has a problem in every look: one that goes away was a change under way."""
    state = found.reader.state
    if state is None:
        return
    for slot in GroupTable(state, lock_timeout_ms=0):
        if slot.queue_slot < state.queue_count and slot.load("seek_to") == 0:
            problem = ""
            for _ in range(LOOKS):
                problem = problem_of(state, slot)
                if not problem:
                    break
            else:
                position = slot.at + layout.GROUP_QUEUE_SLOT.at[name]
                yield Problem(invariant, found.reader.root / FILE_NAME, position, f"group {slot.group}: {problem}")
