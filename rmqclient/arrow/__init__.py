"""Arrow: the messages of a store as record batches, for DuckDB, Polars, pandas and whatever else reads Arrow.

::

    import duckdb
    from rmqclient.arrow import messages

    orders = messages("./store", "orders")
    duckdb.sql("SELECT tags, count(*) FROM orders GROUP BY tags")

Needs ``pip install 'rmqclient[arrow]'``. :mod:`rmqclient.spark` reads with the same modules.
"""

from __future__ import annotations

from rmqclient.store.errors import NotInstalled

try:
    from rmqclient.arrow.messages import Messages, messages, topics
except ModuleNotFoundError as _error:
    raise NotInstalled(f"{_error.name} is not installed: pip install 'rmqclient[arrow]'") from None

__all__ = ["Messages", "messages", "topics"]
