"""Handlers in real processes: workers beside a test, and such that are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from rmqclient import App, Message, Producer
from rmqclient.admin import Admin
from rmqclient.message import ReceivedMessage
from rmqclient.store.crash_points import CrashPoint
from rmqclient.testing import Kit
from tests.client.conftest import wait_for

Rmq = Callable[..., Kit]


@pytest.fixture
def app() -> App:
    """An application whose handler is a function of a test; it sends its attempt and its process."""
    made = App()

    @made.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        with Producer(made.root) as producer:
            producer.send(Message("invoices", {"attempt": message.delivery_attempt, "pid": os.getpid()}))

    return made


def test_a_worker_that_is_killed_before_it_acknowledges_leaves_the_message_to_another_one(rmq: Rmq, app: App) -> None:
    kit = rmq(app)
    kit.send("orders")
    killed = kit.crash_here("ack_locked")
    kit.assert_sent("invoices", {"attempt": 1, "pid": killed}, times=1)
    assert kit.drain().handled == 1
    kit.assert_sent("invoices", {"attempt": 2, "pid": os.getpid()}, times=1)


def test_a_worker_may_be_killed_in_the_call_of_a_handler_or_at_a_later_pass_of_a_point(rmq: Rmq, app: App) -> None:
    kit = rmq(app)
    kit.send("orders")
    kit.crash_here(app.handlers[0].function)
    kit.refute_sent("invoices")
    assert kit.drain().handled == 1
    for _ in range(3):
        kit.send("orders")
    kit.crash_here(CrashPoint.ACK_FINISHED, passes=1)
    kit.drain()
    kit.assert_sent("invoices", {"attempt": 1}, times=3)


def test_the_calls_before_the_one_that_is_killed_get_what_their_handler_takes(rmq: Rmq) -> None:
    app = App()

    @app.handler("orders", group="billing")
    def bill(order: dict[str, int], message: ReceivedMessage) -> None:
        with Producer(app.root) as producer:
            producer.send(Message("invoices", {"order": order["id"]}))

    @app.handler("parcels", group="shipping")
    async def ship(parcel: dict[str, int]) -> None:
        with Producer(app.root) as producer:
            producer.send(Message("labels", {"parcel": parcel["id"]}))

    kit = rmq(app)
    for topic, handler, sent in (("orders", bill, "invoices"), ("parcels", ship, "labels")):
        for number in (1, 2):
            kit.send(topic, {"id": number})
        kit.crash_here(handler, passes=1)
        assert len(kit.sent(sent)) == 1
    assert kit.drain().failed == 0


def test_a_point_that_nobody_comes_to_is_told(rmq: Rmq, app: App) -> None:
    kit = rmq(app)
    with pytest.raises(AssertionError, match=r"did not come to .*ACK_LOCKED.*nothing to do"):
        kit.crash_here("ack_locked")
    with pytest.raises(KeyError):
        kit.crash_here("no such point")


def test_what_workers_handled_before_a_drain_is_told_by_it(rmq: Rmq, app: App) -> None:
    kit = rmq(app)
    kit.send("orders")
    assert kit.drain().handled == 1
    with kit.workers(), Admin(kit.root) as admin:
        for _ in range(2):
            kit.send("orders")
            wait_for(lambda: not any(queue.lag for queue in admin.lag("billing")), "the worker", timeout_s=30)
            assert kit.drain().handled == 1
        assert kit.drain().handled == 0
    assert kit.drain().handled == 0


def test_workers_handle_beside_the_test_and_follow_its_clock(rmq: Rmq, app: App) -> None:
    kit = rmq(app)
    with kit.workers(2) as pids:
        kit.send("orders")
        kit.send("orders", delay=3_600)
        assert kit.drain().handled == 1
        kit.advance(hours=1)
        assert kit.drain().handled == 1
        senders = {pid for pid in pids if kit.sent("invoices", {"pid": pid})}
        assert senders
        # And when one is killed, the other one goes on
        os.kill(pids[0], signal.SIGKILL)
        kit.send("orders")
        kit.drain()
        kit.assert_sent("invoices", times=3)
    # Then the process of the test takes over
    kit.send("orders")
    kit.drain()
    kit.assert_sent("invoices", {"pid": os.getpid()}, times=1)
