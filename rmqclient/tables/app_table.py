"""App table: a table that an application declares when it is imported, and that each of its processes has for itself.

::

    prices = app.table("prices", value_type=Price)

    @app.handler("orders", group="billing")
    def bill(order: Order) -> None:
        prices.wait_until_caught_up()   # every price that was sent before this order is known
        price = prices[order.symbol]

It is opened when it is first used in a process, which waits until it has caught up. In a worker it reads the store that
the handlers take their messages from, which ``rmq run --store`` can choose, and is closed with the worker. Elsewhere,
as in a web server, it opens the store of the application, and is closed when the process ends. A forked child opens its
own, and so does a worker that a handler reached by value.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from pathlib import Path
from typing import Any

from rmqclient.codecs import value_decoder_for
from rmqclient.duration import Duration
from rmqclient.message import SendResult
from rmqclient.names import check_topic
from rmqclient.store import MessageStore, fork
from rmqclient.tables.table import Snapshot, Table


class AppTable(Mapping[str, Any]):
    """The present value of each key of a topic, as :class:`rmqclient.Table`. Made by :meth:`rmqclient.App.table`.

    ``root_of`` tells the directory of the application's store when the table is opened.
    """

    def __init__(self, root_of: Callable[[], Path], topic: str, value_type: Any = bytes) -> None:
        self.topic = check_topic(topic, reserved=True)
        self.value_type = value_type
        value_decoder_for(value_type)
        self._root_of = root_of
        self._opening = threading.Lock()
        self._table: Table | None = None
        _declared[id(self)] = self
        fork.register(self)

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key. Raises KeyError, BodyUnreadable, and what opening the table raises."""
        return self.opened[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.opened)

    def __len__(self) -> int:
        return len(self.opened)

    def __contains__(self, key: object) -> bool:
        return key in self.opened

    def items(self) -> ItemsView[str, Any]:
        """Return keys and values as they are now."""
        return self.opened.items()

    def values(self) -> ValuesView[Any]:
        """Return the values as they are now."""
        return self.opened.values()

    def snapshot(self) -> Snapshot:
        """Return the table as it is now: a mapping that stays as it is."""
        return self.opened.snapshot()

    def wait_for(self, sent: SendResult, timeout: Duration | None = None) -> None:
        """Return when the table knows a message that somebody sent. Raises as :meth:`rmqclient.Table.wait_for`."""
        self.opened.wait_for(sent, timeout)

    def wait_until_caught_up(self, timeout: Duration | None = None) -> None:
        """Return when the table knows all messages that are there now. Raises TimeoutError, StoreClosed."""
        self.opened.wait_until_caught_up(timeout)

    @property
    def opened(self) -> Table:
        """The table of this process, opened now if it was not. Raises what :class:`rmqclient.Table` raises."""
        return self._table or self._open()

    def close(self) -> None:
        """Close the table of this process; using it opens it again."""
        with self._opening:
            table, self._table = self._table, None
        if table is not None:
            table.close()

    def close_in(self, store: MessageStore) -> None:
        """Close the table of this process if it reads this open store."""
        if self._table is not None and self._table.uses(store):
            self.close()

    def leave_to_parent(self) -> None:
        """Forget the table of the process that this one was forked from."""
        self._opening = threading.Lock()
        self._table = None

    def __reduce__(self) -> tuple[object, ...]:
        return AppTable, (self._root_of, self.topic, self.value_type)

    def __repr__(self) -> str:
        return f"AppTable({self.topic!r}, {self.value_type!r})"

    def _open(self) -> Table:
        with self._opening:
            if self._table is None:
                self._table = Table(_serving(self._root_of) or self._root_of(), self.topic, value_type=self.value_type)
            return self._table


def serve(store: MessageStore) -> None:
    """Let the tables of this process read ``store`` from now on: its handlers take their messages from it."""
    _stores.append(store)


def leave(store: MessageStore) -> None:
    """Close the tables of this process that read ``store``."""
    if store in _stores:
        _stores.remove(store)
    for table in list(_declared.values()):
        table.close_in(store)


def _serving(root_of: Callable[[], Path]) -> MessageStore | None:
    """Return the store of the handlers of this process; the application's own if they have several."""
    if len(_stores) < 2:
        return _stores[0] if _stores else None
    root = root_of()
    return next((store for store in _stores if store.root == root), None)


class _Stores(list[MessageStore]):
    """The open stores that handlers of this process take their messages from."""

    def leave_to_parent(self) -> None:
        """Forget the stores of the process that this one was forked from."""
        self.clear()


_stores = _Stores()
_declared: weakref.WeakValueDictionary[int, AppTable] = weakref.WeakValueDictionary()


def _close_all() -> None:
    for table in list(_declared.values()):
        table.close()


atexit.register(_close_all)
fork.register(_stores)
