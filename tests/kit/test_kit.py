"""What a test does with the kit: send, drain, look, fail, and one kit at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rmqclient import App, Message, Producer, RetryPolicy
from rmqclient.consuming.rebalance import Rebalancer
from rmqclient.errors import ConfigMismatch, RequestTimeout, StoreBusy
from rmqclient.message import ReceivedMessage
from rmqclient.testing import Drained, DrainTimeout, Kit
from tests.support.threads import no_thread_left

Rmq = Callable[..., Kit]


class Shop:
    """An application: bills orders, and sends an invoice for each."""

    def __init__(self) -> None:
        self.app = App("/nobody/opens/this")
        self.handled: list[dict[str, int]] = []
        self.billed = threading.Event()
        self.app.handler("orders", group="billing", retry=RetryPolicy(max_retries=2, delays=(10.0, 60.0)))(self.bill)
        self.app.handler("quotes", group="quoting", replies=True)(self.quote)

    def bill(self, order: dict[str, int]) -> None:
        self.handled.append(order)
        self.billed.set()
        with Producer(self.app.root) as producer:
            producer.send(Message("invoices", {"order": order["id"]}, tags="new"))

    def quote(self, body: dict[str, int]) -> dict[str, int]:
        return {"price": 2 * body["size"]}


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_handlers_run_while_the_test_drains_and_at_no_other_time(rmq: Rmq, shop: Shop) -> None:
    kit = rmq(shop.app)
    kit.send("orders", {"id": 1})
    kit.drain()
    assert shop.handled == [{"id": 1}]
    # Given a consumer that runs, what is sent waits for the next drain
    shop.billed.clear()
    kit.send("orders", {"id": 2})
    assert not shop.billed.wait(1), "a thread that may take it does so at once"
    kit.refute_sent("invoices", {"order": 2})
    assert kit.drain() == Drained(handled=1, failed=0, dead_lettered=0)
    kit.assert_sent("invoices", {"order": 2}, tags="new", times=1)
    assert kit.calls(shop.app.handlers[0].function) == [{"id": 1}, {"id": 2}]


def test_an_assertion_says_what_is_there(rmq: Rmq, shop: Shop) -> None:
    kit = rmq(shop.app)
    with pytest.raises(AssertionError, match="nothing was sent to 'invoices'"):
        kit.assert_sent("invoices")
    kit.send("orders", {"id": 1, "customer": {"name": "ada", "city": "bonn"}})
    kit.assert_sent("orders", {"customer": {"name": "ada"}})
    kit.assert_sent("orders", lambda message: message.body.startswith(b"{"))
    with pytest.raises(AssertionError) as failed:
        kit.assert_sent("orders", {"customer": {"name": "bob"}})
    assert "0 messages match, not at least one" in str(failed.value)
    assert "ada" in str(failed.value)
    with pytest.raises(AssertionError, match="1 messages match, not 0"):
        kit.refute_sent("orders")


def test_what_waits_for_its_time_was_sent_and_comes_when_the_clock_has_moved(rmq: Rmq, shop: Shop) -> None:
    kit = rmq(shop.app)
    began = kit.now
    kit.send("orders", {"id": 1}, delay=timedelta(days=40))
    kit.send("orders", {"id": 2}, delay_level=18)
    kit.send("orders", {"id": 3}, deliver_at=began + timedelta(hours=1))
    kit.assert_sent("orders", times=3)
    kit.drain()
    assert shop.handled == []
    kit.advance(hours=2)
    kit.drain()
    assert sorted(each["id"] for each in shop.handled) == [2, 3]
    kit.advance(timedelta(days=40))
    kit.drain()
    assert [each["id"] for each in shop.handled][-1] == 1
    assert kit.now - began > timedelta(days=40)
    assert abs(datetime.now(UTC) - began) < timedelta(minutes=10)
    kit.assert_sent("orders", times=3)


def test_a_key_is_given_as_to_a_producer_and_comes_before_other_keys(rmq: Rmq) -> None:
    kit = rmq(App())
    kit.send("orders", b"", key="A-17")
    kit.send("orders", b"", key="A-18", keys=["customer-4"])
    assert [tuple(each.keys) for each in kit.sent("orders")] == [("A-17",), ("A-18", "customer-4")]


def test_a_drain_raises_what_a_handler_raised(rmq: Rmq) -> None:
    app = App()

    @app.handler("orders", group="billing")
    def refuse(order: dict[str, int]) -> None:
        raise KeyError(order["id"])

    kit = rmq(app)
    kit.send("orders", {"id": 7})
    with pytest.raises(KeyError) as raised:
        kit.drain()
    assert "refuse of group billing" in raised.value.__notes__[0]
    kit.advance(seconds=10)
    told = kit.drain(raises=False)
    assert (told.handled, told.failed) == (0, 1)
    assert [type(error) for error in told.errors] == [KeyError]
    assert kit.drain() == Drained(0, 0, 0)


def test_a_drain_waits_for_a_queue_that_is_taken_and_not_yet_delivered(
    rmq: Rmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App()

    @app.handler("orders", group="billing")
    def refuse(order: dict[str, int]) -> None:
        raise KeyError(order["id"])

    publish = Rebalancer._publish

    def publish_late(rebalancer: Rebalancer[Any]) -> None:
        time.sleep(0.5)
        publish(rebalancer)

    monkeypatch.setattr(Rebalancer, "_publish", publish_late)
    kit = rmq(app)
    kit.send("orders", {"id": 7})
    kit.drain(raises=False)
    kit.advance(seconds=10)
    assert kit.drain(raises=False).failed == 1


def test_a_failure_that_the_test_plans_is_retried_when_its_time_has_come(rmq: Rmq, shop: Shop) -> None:
    kit = rmq(shop.app)
    bill = shop.app.handlers[0].function
    kit.send("orders", {"id": 1})
    kit.failing(bill, TimeoutError, times=2)
    assert kit.drain().failed == 1
    kit.advance(seconds=9)
    assert kit.drain() == Drained(0, 0, 0)
    kit.advance(seconds=1)
    assert kit.drain().failed == 1
    kit.advance(seconds=60)
    assert kit.drain().handled == 1
    kit.assert_sent("invoices", times=1)
    # And with one failure more it is given up
    kit.send("orders", {"id": 2})
    kit.failing(bill, times=3)
    for _ in range(3):
        kit.drain()
        kit.advance(minutes=1)
    (letter,) = kit.dead_letters("billing")
    assert letter.message.body == b'{"id":2}'
    assert letter.attempts == 3
    assert "as the test wants it" in letter.error


def test_a_send_that_fails_is_a_failure_of_the_handler_that_sends(rmq: Rmq, shop: Shop) -> None:
    kit = rmq(shop.app)
    kit.send("orders", {"id": 1})
    kit.failing("send", StoreBusy("as under load"))
    with pytest.raises(StoreBusy):
        kit.drain()
    kit.refute_sent("invoices")
    kit.advance(seconds=10)
    kit.drain()
    kit.assert_sent("invoices", times=1)


def test_a_request_is_answered_by_the_handlers_of_the_test(rmq: Rmq, shop: Shop) -> None:
    kit = rmq(shop.app)
    assert kit.request("quotes", {"size": 4}).body == b'{"price":8}'
    with pytest.raises(RequestTimeout):
        kit.request("nobody", b"", timeout=0.01)
    # And code that asks by itself runs beside handlers
    with kit.running(), Producer(shop.app.root) as producer:
        assert producer.request(Message("quotes", {"size": 1}), 10).body == b'{"price":2}'


def test_the_application_has_its_own_store_again_when_the_kit_is_closed(shop: Shop) -> None:
    with no_thread_left("rmq-"):
        with Kit(shop.app) as kit:
            assert shop.app.root == kit.root
            root = kit.root
        assert str(shop.app.root) == "/nobody/opens/this"
        assert not root.exists()
        kit.close()


def test_a_process_has_one_kit_at_a_time(rmq: Rmq, shop: Shop) -> None:
    rmq(shop.app)
    with pytest.raises(ConfigMismatch, match="close the other store first"):
        Kit(shop.app)
    assert str(shop.app.root) != "/nobody/opens/this"


def test_a_store_of_production_cannot_be_opened_beside_a_kit(rmq: Rmq, shop: Shop, tmp_path: object) -> None:
    rmq(shop.app)
    with pytest.raises(ConfigMismatch, match="give code under test the store of the test"):
        Producer(f"{tmp_path}/production")


def test_a_handler_that_does_not_return_ends_the_drain_by_its_name(rmq: Rmq) -> None:
    app, may_end = App(), threading.Event()

    @app.handler("orders", group="billing")
    def hang(_: ReceivedMessage) -> None:
        may_end.wait(60)

    kit = rmq(app)
    kit.send("orders")
    try:
        with pytest.raises(DrainTimeout, match=r"after 0\.05 s: .*hang of group billing"):
            kit.drain(timeout_s=0.05)
    finally:
        may_end.set()
    assert kit.drain().handled == 1


def test_wrong_use_is_told_at_once(rmq: Rmq, shop: Shop) -> None:
    kit = rmq(shop.app)
    with pytest.raises(ValueError, match="give the function of a handler"):
        kit.failing(print)
    with pytest.raises(ValueError, match="times=0"):
        kit.failing("send", times=0)
    with pytest.raises(ValueError, match="not negative"):
        kit.advance(seconds=-1)


async def drained_in_a_loop(kit: Kit) -> int:
    await kit.aadvance(minutes=10)
    reply = await kit.arequest("quotes", {"size": 1})
    assert reply.body == b'{"price":2}'
    return (await kit.adrain()).handled


def test_a_loop_goes_on_while_it_drains(rmq: Rmq, shop: Shop) -> None:

    kit = rmq(shop.app)
    kit.send("orders", {"id": 1}, delay=600)
    asyncio.run(drained_in_a_loop(kit))
    kit.assert_sent("invoices", {"order": 1})
