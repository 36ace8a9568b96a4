"""The web server of the shop: ``uvicorn examples.fastapi_shop.web:api``."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from examples.fastapi_shop.handlers import app
from examples.fastapi_shop.tables import Base, Bill, Order, engine, outbox
from rmqclient import Message, Producer
from rmqclient.frameworks.asgi import Lifespan

Base.metadata.create_all(engine)
rmq = Lifespan(app)
api = FastAPI(lifespan=rmq)


class Wanted(BaseModel):
    """What a customer orders."""

    item: str
    count: int


@api.post("/orders", status_code=201)
def take(wanted: Wanted) -> dict[str, int]:
    """Take an order: its row and its message are one transaction."""
    with Session(engine) as session, session.begin():
        order = Order(item=wanted.item, count=wanted.count)
        session.add(order)
        session.flush()
        outbox.add(session, Message("orders", {"number": order.number, "item": order.item, "count": order.count}))
        if order.count < 1:
            raise HTTPException(400, "nothing was ordered")
        return {"number": order.number}


@api.get("/orders")
def show() -> list[dict[str, int | str | None]]:
    """List what was ordered and billed."""
    with Session(engine) as session:
        found = session.execute(select(Order, Bill.cents).outerjoin(Bill, Bill.order_number == Order.number))
        return [{"number": order.number, "item": order.item, "cents": cents} for order, cents in found]


@api.post("/visits/{page}", status_code=202)
async def visit(page: str, producer: Annotated[Producer, Depends(rmq.get_producer)]) -> None:
    """Note a visit, without a database."""
    await producer.send_async("visits", page)
