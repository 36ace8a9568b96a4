"""The tables of a shop that uses SQLAlchemy, and a child that sells until it is killed."""

from __future__ import annotations

import itertools
import sys

from sqlalchemy import String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from rmqclient import Message
from rmqclient.frameworks.sqlalchemy import Inbox, Outbox


class Base(DeclarativeBase):
    """What the tables of the shop have in common."""


class Order(Base):
    """What was ordered."""

    __tablename__ = "orders"

    number: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column(String(50))


outbox = Outbox(Base.metadata)
inbox = Inbox("billing", Base.metadata)


def sell(url: str, root: str) -> None:
    """Order for ever, every third time in vain, while a relay of the same process sends; say when it has begun."""
    engine = create_engine(url)
    with outbox.relay(root, engine, interval=0.001, batch=5).running():
        for number in itertools.count(1):
            with Session(engine) as session:
                session.add(Order(number=number, item="apples"))
                outbox.add(session, Message("orders", str(number).encode()), str(number))
                if number % 3 == 0:
                    session.flush()
                    session.rollback()
                else:
                    session.commit()
            if number == 20:
                print("selling", flush=True)


if __name__ == "__main__":
    sell(*sys.argv[1:])
