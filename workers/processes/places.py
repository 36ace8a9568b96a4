"""Places: a store or a cluster as a supervisor and its workers open it, and where the workers' heartbeats are.

==============  ===========================  ====================================================
place           messages                     heartbeats of the workers
==============  ===========================  ====================================================
a directory     in its files                 in its shared memory
a URL           at the brokers of a cluster  in files of this host: :mod:`rmqclient.admin.worker_files`
==============  ===========================  ====================================================
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqclient.admin.workers import WorkerTable, workers_of_cluster
from rmqclient.opening import Place, open_backend, open_local_store
from rmqclient.place import scheme_of, shown

if TYPE_CHECKING:
    from rmqclient import StoreConfig
    from rmqclient.admin import Group


class Supervised(NamedTuple):
    """What a supervisor needs of a place."""

    name: str
    """The place, for people."""
    durability: str
    """How durable a send is, for people."""
    workers: WorkerTable
    groups: Callable[[], list[Group]]
    """The groups as they stand; empty for a cluster, whose brokers are not asked. Raises QueueError, OSError."""
    check_in_place: Callable[[], None]
    """Raises StoreReplaced when the directory is another one now; of a cluster never."""
    mark: Callable[[str, str, str], None]
    """Writes kind, subject and words into the marks of a store; a cluster has none."""


class Working(NamedTuple):
    """What a worker needs of a place."""

    place: Place
    workers: WorkerTable
    check_in_place: Callable[[], None]
    """As that of :class:`Supervised`."""


@contextlib.contextmanager
def for_supervisor(root: Path | str, config: StoreConfig | None) -> Iterator[Supervised]:
    """Open a place for a supervisor, which makes a store that is not there.

    Raises what :func:`rmqclient.store.open_store` raises, NameServerUnreachable, and OSError for the state directory.
    """
    if isinstance(root, str) and scheme_of(root):
        open_backend(root).close()  # a mistake in the URL is found here, not in each worker
        with contextlib.closing(workers_of_cluster(root)) as workers:
            yield Supervised(shown(root), "as its brokers are set", workers, list, _always, lambda *_: None)
        return
    from rmqclient.admin import Admin  # noqa: PLC0415 - a worker does not need it

    with open_local_store(root, "worker processes", config, create=True) as store:
        admin = Admin(store)
        admin.prefer_as_housekeeper()
        durability = store.config.durability.value
        check = store.life.check_in_place
        yield Supervised(str(store.root), durability, store.workers(), admin.groups, check, store.marks.write)


@contextlib.contextmanager
def for_worker(root: Path | str, config: StoreConfig | None) -> Iterator[Working]:
    """Open a place for a worker. Raises as :func:`for_supervisor`, and for a store that is not there."""
    if isinstance(root, str) and scheme_of(root):
        with contextlib.closing(open_backend(root)) as backend:
            yield Working(backend, workers_of_cluster(root), _always)
        return
    with open_local_store(root, "worker processes", config, housekeeping=False) as store:
        yield Working(store, store.workers(), store.life.check_in_place)


def _always() -> None:
    """Find everything in place."""
