"""App table: a table that an application declares at import. Each process has a table of its own.

::

    prices = app.table("prices", value_type=Price)

    @app.handler("orders", group="billing")
    def bill(order: Order) -> None:
        prices.wait_until_caught_up()   # every price that was sent before this order is known
        price = prices[order.symbol]

The first use in a process opens the table and waits until it has caught up. It reads this store:

====================================================  =================================================================
the table is used                                     it reads, and is closed with
====================================================  =================================================================
while a consumer runs for its application             the store of that consumer; the consumer
in a worker                                           the store of the worker, which ``rmq run --store`` can choose;
                                                      the worker
anywhere else, as in a web server                     the store that its application names; the process
====================================================  =================================================================

No other consumer of the process changes that. A forked child opens a table of its own, and so does a worker that a
handler reached by value.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqclient.backend import Backend
from rmqclient.codecs import value_decoder_for
from rmqclient.duration import Duration
from rmqclient.message import SendResult
from rmqclient.names import check_topic
from rmqclient.opening import Place, open_backend
from rmqclient.store import fork
from rmqclient.store.errors import StoreUnusable
from rmqclient.store.native_threads import threading
from rmqclient.tables.table import Snapshot, Table


class AppTables:
    """The tables of one application in this process, and the backend that its consumer reads.

    ``root_of`` returns the directory or the URL that the application names; it is called when a table is opened.
    """

    def __init__(self, root_of: Callable[[], Path | str]) -> None:
        self._root_of = root_of
        self._backends: list[Backend] = []
        self._tables: weakref.WeakValueDictionary[int, AppTable] = weakref.WeakValueDictionary()
        _applications.add(self)
        fork.register(self)

    def add(self, table: AppTable) -> None:
        """Add a declared table."""
        self._tables[id(table)] = table

    def serve(self, backend: Backend) -> None:
        """Let the tables read ``backend`` from now on, which a consumer of the application uses."""
        self._backends.append(backend)
        self.close()

    def leave(self, backend: Backend) -> None:
        """Close the tables, and stop reading ``backend``. Does nothing if they did not read it."""
        if backend in self._backends:
            self._backends.remove(backend)
            self.close()

    def read(self, root_of: Callable[[], Path | str]) -> None:
        """Let the tables read the store of ``root_of`` while no consumer of the application runs."""
        self._root_of = root_of
        self.close()

    def close(self) -> None:
        """Close every table of this process; using one opens it again."""
        for table in list(self._tables.values()):
            table.close()

    @property
    def place(self) -> Place:
        """The place that the tables read. Raises StoreUnusable if consumers of the application use several stores."""
        if len(self._backends) > 1:
            raise StoreUnusable(
                f"{len(self._backends)} consumers of one application run in this process, so its tables could read any "
                "of their stores: give each consumer an App of its own, or open a Table"
            )
        if self._backends:
            return self._backends[0]
        return _worker_backends[-1] if _worker_backends else self._root_of()

    @property
    def root(self) -> Path | str:
        """The directory or the URL of :attr:`place`, for users that outlive a consumer. Raises as that."""
        place = self.place
        return place if isinstance(place, Path | str) else place.root

    def leave_to_parent(self) -> None:
        """In a forked child: drop the parent's consumers."""
        self._backends.clear()

    def __reduce__(self) -> tuple[object, ...]:
        return AppTables, (self._root_of,)


class AppTable(Mapping[str, Any]):
    """The current value of each key of a topic, as :class:`rmqclient.Table`. Made by :meth:`rmqclient.App.table`.

    ``tables`` are those of its application.
    """

    def __init__(self, tables: AppTables, topic: str, value_type: Any = bytes) -> None:
        self.topic = check_topic(topic, reserved=True)
        self.value_type = value_type
        value_decoder_for(value_type)
        self._tables = tables
        self._opening = threading.Lock()
        self._table: Table | None = None
        tables.add(self)
        fork.register(self)

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key. Raises KeyError, BodyUnreadable, and as opening the table."""
        return self.opened[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.opened)

    def __len__(self) -> int:
        return len(self.opened)

    def __contains__(self, key: object) -> bool:
        return key in self.opened

    def items(self) -> ItemsView[str, Any]:
        """Return the current keys and values."""
        return self.opened.items()

    def values(self) -> ValuesView[Any]:
        """Return the current values."""
        return self.opened.values()

    def snapshot(self) -> Snapshot:
        """Return an immutable copy of the table."""
        return self.opened.snapshot()

    def wait_for(self, sent: SendResult, timeout: Duration | None = None) -> None:
        """Wait until the table has a sent message. Raises as :meth:`rmqclient.Table.wait_for`."""
        self.opened.wait_for(sent, timeout)

    def wait_until_caught_up(self, timeout: Duration | None = None) -> None:
        """Wait until the table has every message that is in the topic now. Raises TimeoutError, StoreClosed."""
        self.opened.wait_until_caught_up(timeout)

    @property
    def opened(self) -> Table:
        """The table of this process; the first access opens it. Raises as :class:`rmqclient.Table`."""
        table = self._table
        if table is None:
            with self._opening:
                table = self._table
                if table is None:
                    table = self._table = Table(self._tables.place, self.topic, value_type=self.value_type)
        return table

    def close(self) -> None:
        """Close the table of this process; using it opens it again."""
        with self._opening:
            table, self._table = self._table, None
        if table is not None:
            table.close()

    def leave_to_parent(self) -> None:
        """In a forked child: drop the parent's table."""
        self._opening = threading.Lock()
        self._table = None

    def __reduce__(self) -> tuple[object, ...]:
        return AppTable, (self._tables, self.topic, self.value_type)

    def __repr__(self) -> str:
        return f"AppTable({self.topic!r}, {self.value_type!r})"


class _WorkerBackends(list[Backend]):
    """The backend of this worker process; empty in any other process."""

    def leave_to_parent(self) -> None:
        """In a forked child: drop the backend, because the child is not a worker."""
        self.clear()


@contextmanager
def read_by_worker(place: Place) -> Iterator[None]:
    """Let the tables of every application read this worker's backend until the block ends."""
    backend = open_backend(place)
    _worker_backends.append(backend)
    try:
        yield
    finally:
        _worker_backends.remove(backend)
        _close_all()


_worker_backends = _WorkerBackends()
_applications: weakref.WeakSet[AppTables] = weakref.WeakSet()


def _close_all() -> None:
    for application in list(_applications):
        application.close()


atexit.register(_close_all)
fork.register(_worker_backends)
