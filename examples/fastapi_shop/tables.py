"""Tables of the shop, with those of its outbox and its inbox. Its data lie in ``SHOP_DATA``, ``./shop-data`` else.

``SHOP_DATABASE`` is the URL of another database than SQLite.
"""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from rmqclient.frameworks.sqlalchemy import Inbox, Outbox

DATA = Path(os.environ.get("SHOP_DATA", "shop-data")).absolute()
DATA.mkdir(parents=True, exist_ok=True)

engine = create_engine(os.environ.get("SHOP_DATABASE", f"sqlite:///{DATA / 'shop.db'}"))


class Base(DeclarativeBase):
    """What the tables have in common."""


class Order(Base):
    """An order of a customer."""

    __tablename__ = "orders"

    number: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column(String(50))
    count: Mapped[int]


class Bill(Base):
    """What an order costs."""

    __tablename__ = "bills"

    number: Mapped[int] = mapped_column(primary_key=True)
    order_number: Mapped[int]
    cents: Mapped[int]


outbox = Outbox(Base.metadata)
inbox = Inbox("billing", Base.metadata)
