"""Handlers of the shop: ``rmq run examples.fastapi_shop.handlers:app`` runs them, and the relay of its outbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import structlog
from sqlalchemy.orm import Session

from examples.fastapi_shop.tables import DATA, Base, Bill, engine, inbox, outbox
from rmqclient import App, ReceivedMessage
from rmqclient.frameworks.structlog import add_message

CENTS = {"apples": 50, "pears": 75}

structlog.configure(processors=[add_message, structlog.processors.add_log_level, structlog.processors.JSONRenderer()])
log = structlog.get_logger()

app = App(DATA / "store")


@dataclass
class Ordered:
    """The body of a message of the topic ``orders``."""

    number: int
    item: str
    count: int


@app.lifespan
def relay() -> Iterator[None]:
    """Send what is in the outbox; one worker at a time does it."""
    Base.metadata.create_all(engine)
    with outbox.relay(app.root, engine).running():
        yield


@app.handler("orders", group="billing", threads=2)
def bill(order: Ordered, message: ReceivedMessage) -> None:
    """Bill an order once, however often its message comes."""
    with Session(engine) as session, inbox.once(session, message) as is_first:
        if is_first:
            session.add(Bill(order_number=order.number, cents=CENTS[order.item] * order.count))
            log.info("billed", number=order.number)


@app.handler("visits", group="counting")
async def visit(page: str) -> None:
    """Count a visit: a message that comes without a transaction."""
    log.info("visited", page=page)
