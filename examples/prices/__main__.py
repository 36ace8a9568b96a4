"""``python -m examples.prices`` sends prices, and as many orders, until Ctrl-C."""

from __future__ import annotations

import itertools
import random
import time

from examples.prices.app import app
from examples.prices.market import SYMBOLS, order, quote
from rmqclient import Producer

PAUSE_S = 0.01

if __name__ == "__main__":
    with Producer(app.root) as producer:
        for number in itertools.count():
            quote(producer, random.choice(SYMBOLS), random.randrange(10_000, 20_000))
            order(producer, number, random.choice(SYMBOLS), random.randrange(1, 100))
            time.sleep(PAUSE_S)
