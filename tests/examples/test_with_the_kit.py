"""The examples, tried as their users would try them: with the kit, in one process, by a clock that the test moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from examples import quotes
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
