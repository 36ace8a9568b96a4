"""The examples, tried as their users would try them: with the kit, in one process, by a clock that the test moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from examples import quotes, returns
from examples.prices import app as prices
from examples.prices.market import order, quote
from rmqclient.testing import Kit

Rmq = Callable[..., Kit]


@pytest.fixture
def valuing(rmq: Rmq) -> Iterator[Kit]:
    """The prices application; the producer that it keeps is closed before the kit is."""
    kit = rmq(prices.app)
    yield kit
    prices.results().close()
    prices.results.cache_clear()


def test_a_quote_is_the_price_times_the_count(rmq: Rmq) -> None:
    kit = rmq(quotes.app)
    assert json.loads(kit.request("quotes", quotes.Order("apples", 3)).body) == {"item": "apples", "total": 1.5}
    # And an item without a price is not answered, and comes again
    kit.send("quotes", quotes.Order("plums", 1))
    with pytest.raises(KeyError, match="plums"):
        kit.drain()


def test_an_order_is_valued_by_the_last_price(valuing: Kit) -> None:
    quote(valuing.producer, "IBM", 100)
    quote(valuing.producer, "IBM", 120)
    order(valuing.producer, 1, "IBM", 3)
    valuing.drain()
    valuing.assert_sent("valuations", {"symbol": "IBM", "cents": 360}, times=1)


def test_an_order_without_a_price_comes_again_after_a_second(valuing: Kit) -> None:
    order(valuing.producer, 1, "IBM", 3)
    assert valuing.drain(raises=False).failed == 1
    quote(valuing.producer, "IBM", 100)
    valuing.drain()
    valuing.refute_sent("valuations")
    valuing.advance(seconds=1)
    valuing.drain()
    valuing.assert_sent("valuations", {"cents": 300}, times=1)


def test_returned_goods_are_refunded_when_somebody_has_looked_at_them(rmq: Rmq) -> None:
    kit = rmq(returns.app)
    sent = kit.send("returns", "4711")
    kit.drain()
    kit.assert_sent("mails", {"order": "4711"}, times=1)
    kit.advance(days=9)
    assert kit.producer.signal(sent.message_id, "inspected", returns.Inspection("Ada", fine=True), group="returns")
    kit.drain()
    kit.advance(days=3)
    assert kit.drain().handled == 1
    kit.assert_sent("mails", {"what": "closed", "text": "did R-4711 arrive?"}, times=1)


def test_goods_that_never_come_back_end_the_wait(rmq: Rmq) -> None:
    kit = rmq(returns.app)
    kit.send("returns", "4711")
    kit.drain()
    kit.advance(returns.PATIENCE)
    assert kit.drain().handled == 1
    assert [json.loads(each.body)["what"] for each in kit.sent("mails")] == ["confirmed", "missing"]
