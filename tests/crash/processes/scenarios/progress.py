"""Children that move a group's progress: acknowledge, skip, seek, begin, write offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rmqclient.store import open_store
from tests.crash.processes.order import Note, Order
from tests.support.stores import GROUP, QUEUE, SPAN, grant_of

WANTED = "wanted"


def acknowledge(order: Order, note: Note) -> None:
    """Take everything there is and acknowledge it; note the offsets whose acknowledgement was taken."""
    grant = grant_of(open_store(order.root, housekeeping=False))
    taken = [message.queue_offset for message in grant.take(SPAN, SPAN)]
    order.arm()
    for offsets in chunks(PATTERNS[order.pattern](taken), order.batch):
        if grant.acknowledge_offsets(offsets):
            note(" ".join(map(str, offsets)))


def skip(order: Order, note: Note) -> None:
    """Take what has the wanted tag, some at a time, and acknowledge it; note the offsets that were taken back."""
    grant = grant_of(open_store(order.root, housekeeping=False), tags=[WANTED])
    order.arm()
    while taken := [message.queue_offset for message in grant.take(order.batch, SPAN)]:
        for offsets in chunks(PATTERNS[order.pattern](taken), order.batch):
            if grant.acknowledge_offsets(offsets):
                note(" ".join(map(str, offsets)))


def write_offsets(order: Order, note: Note) -> None:
    """Acknowledge message after message and write ``consumerOffset.json`` each time; note what it then says."""
    store = open_store(order.root, housekeeping=False)
    grant = grant_of(store)
    taken = [message.queue_offset for message in grant.take(SPAN, SPAN)]
    order.arm()
    for offset in taken:
        assert grant.acknowledge_offsets([offset])
        store.offsets.persist()
        note(grant.committed_offset)


def seek(order: Order, note: Note) -> None:
    """Move the group to the target, and say so."""
    store = open_store(order.root, housekeeping=False)
    slot = store.groups.find_or_add(GROUP, store.topics.slot(QUEUE), 0)
    order.arm()
    with slot.locked(store.config.lock_timeout_ms):
        slot.seek(order.target)
    note(order.target)


def commit(order: Order, note: Note) -> None:
    """Own the queue, and commit its end, then the target, as a client does; say so."""
    store = open_store(order.root, housekeeping=False)
    epoch = grant_of(store).epoch
    slot = store.groups.find_or_add(GROUP, store.topics.slot(QUEUE), 0)
    order.arm()
    for offset in (store.topics.max_offset(QUEUE), order.target):
        assert slot.commit(offset, epoch, store.config.lock_timeout_ms)
        note(offset)


def step_over(order: Order, note: Note) -> None:
    """Take from a queue whose messages below the target were removed, and say so."""
    store = open_store(order.root, housekeeping=False)
    grant = grant_of(store)
    store.topics.raise_min_offset(QUEUE, order.target)
    order.arm()
    note(len(grant.take(1, SPAN)))


def begin(order: Order, note: Note) -> None:
    """Make the slots of a new group for every queue there is, at their ends."""
    store = open_store(order.root, housekeeping=False)
    store.topics.create("latecomers", 3)
    ends = {store.topics.slot(queue): store.topics.max_offset(queue) for queue in store.topics.all_queues()}
    order.arm()
    note(store.groups.begin("new", ends))


def chunks(offsets: list[int], size: int) -> Iterator[list[int]]:
    """Split into lists of ``size``."""
    return (offsets[at : at + size] for at in range(0, len(offsets), size))


def _blocks_reversed(offsets: list[int]) -> list[int]:
    """Each hundredth message is late, and the committed offset then moves over whole words of the bitmap."""
    return [offset for block in chunks(offsets, 100) for offset in reversed(block)]


def _pairs_swapped(offsets: list[int]) -> list[int]:
    return [offset for pair in chunks(offsets, 2) for offset in reversed(pair)]


def _first_one_never(offsets: list[int]) -> list[int]:
    """The committed offset does not move at all: everything is known from the bitmap alone."""
    return offsets[1:]


PATTERNS: dict[str, Callable[[list[int]], list[int]]] = {
    "in order": lambda offsets: offsets,
    "pairs swapped": _pairs_swapped,
    "blocks reversed": _blocks_reversed,
    "first one never": _first_one_never,
}
