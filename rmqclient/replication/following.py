"""Following: makes a directory a replica, opens it, and follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rmqclient.replication.follower import Follower
from rmqclient.replication.primary_client.broker_client import BrokerClient, broker_beside, split
from rmqclient.replication.receiving import Ack
from rmqclient.store import MessageStore, StoreConfig, clock, layout, open_store
from rmqclient.store.recovery.replica import become_replica
from rmqclient.store.settings.replica_mark import ReplicaMark, read_mark
from rmqclient.store.settings.store_settings import STORE_SETTINGS_FILE, StoreSettings


def follow(root: Path, primary: str, broker: str | None, ack: Ack, tell: Callable[[Follower, int], None]) -> None:
    """Follow a primary until :meth:`Follower.end`. ``tell`` is called once, with the follower and the end of the log.

    ``primary`` is its address for replicas, ``broker`` that for requests; default: the port before. A new directory
    gets the primary's file sizes, so its broker must answer then. Raises ValueError for addresses, and as
    :func:`become_replica`, :func:`rmqclient.store.open_store` and :meth:`Follower.run`.
    """
    broker = broker_beside(primary) if broker is None else broker
    split(primary), split(broker)
    with open_replica(root, primary, broker) as store:
        follower = Follower(store, primary, broker, ack=ack)
        tell(follower, store.state.published_to)
        follower.run()


@contextmanager
def open_replica(root: Path, primary: str, broker: str) -> Iterator[MessageStore]:
    """Open a replica, for the length of a block; makes a new one in an empty directory. Raises as :func:`follow`."""
    known = read_mark(root) if root.is_dir() else None
    if known is None or (known.primary, known.broker) != (primary, broker):
        become_replica(root, _config_of(root, broker), ReplicaMark(primary, broker, clock.wall_ms()))
    with open_store(root, create=False) as store:
        yield store


def _config_of(root: Path, broker: str) -> StoreConfig | None:
    """Return the settings for a new directory; None for a directory with a store."""
    if (root / STORE_SETTINGS_FILE).exists():
        return None
    with BrokerClient(broker) as client:
        return config_for(client.log_shape().settings)


def config_for(settings: StoreSettings) -> StoreConfig:
    """Return a configuration with these file sizes. Raises ValueError for sizes that this library does not support."""
    most = settings.commit_log_file_bytes - layout.MAX_RECORD_OVERHEAD - layout.BLANK_RECORD.size
    return StoreConfig(**asdict(settings), max_body_bytes=min(StoreConfig().max_body_bytes, most))
