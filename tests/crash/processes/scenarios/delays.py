"""Children that deliver delayed messages, cancel them, and write down how far the delivery is."""

from __future__ import annotations

import itertools

from rmqclient.store import Message, open_store
from rmqclient.store.waiting.timer_bits import QUEUE as TIMER_QUEUE
from rmqclient.store.waiting.timer_bits import WORD
from tests.crash.processes.order import Note, Order
from tests.support.stores import TOPIC, after_every_delay, appender_of, body_of, waiting


def deliver(order: Order, note: Note) -> None:
    """Deliver what waits in the delay levels, as if the longest delay were over; note when all is delivered."""
    store = open_store(order.root, housekeeping=False)
    store.schedule.now_ms = after_every_delay
    order.arm()
    while any(waiting(store).values()):
        store.schedule.look()
    note("delivered")


def persist_schedule(order: Order, note: Note) -> None:
    """Deliver one message after the other, and write down after each how far that is."""
    store = open_store(order.root, housekeeping=False)
    appender = appender_of(store)
    store.schedule.now_ms = after_every_delay
    order.arm()
    for number in itertools.count():
        appender.append(Message(TOPIC, body_of(number)), delay_level=1)
        store.schedule.look()
        store.schedule.persist()
        note(number + 1)


def deliver_timed(order: Order, note: Note) -> None:
    """Deliver what waits in the timer, as if all of it were due; note when all is delivered."""
    store = open_store(order.root, housekeeping=False)
    store.timer.now_ms = lambda: 1 << 42
    order.arm()
    while store.timer.look() == 0 or any(True for _ in store.timer.pending()):
        pass
    store.timer.look()  # with nothing to deliver, it moves on over what is done
    note("delivered")


def cancel_timed(order: Order, note: Note) -> None:
    """Cancel every second message that waits in the timer; note the id of each."""
    store = open_store(order.root, housekeeping=False)
    appender = appender_of(store)
    waiting_now = list(store.timer.pending())
    order.arm()
    for pending in waiting_now[::2]:
        assert store.timer.cancel(pending.message_id, appender)
        note(pending.message_id)


def roll_timed(order: Order, note: Note) -> None:
    """Append everything again that waits in the timer, as before its files are removed."""
    store = open_store(order.root, housekeeping=False)
    end = store.state.published_to
    order.arm()
    store.timer.roll_below(end)
    note("rolled")


def persist_timer(order: Order, note: Note) -> None:
    """Deliver sixty-four messages after the other, and write down after each what is done."""
    store = open_store(order.root, housekeeping=False)
    appender = appender_of(store)
    store.timer.now_ms = after_every_delay
    order.arm()
    for number in itertools.count():
        due_ms = after_every_delay()
        appender.append_batch([Message(TOPIC, body_of(number)) for _ in range(WORD)], due_ms=due_ms)
        while store.timer.look() == 0 or store.timer.bits.begin < store.topics.max_offset(TIMER_QUEUE):
            pass
        store.timer.persist()
        note(number + 1)
