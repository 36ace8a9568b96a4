"""Places: opens the directory, the archive or the RocketMQ cluster of a read."""

# ruff: noqa: PLC0415 - imports inside functions: a read of a directory needs nothing of the cluster

from __future__ import annotations

from rmqclient.spark.files.store_files import kept_store_place, store_place
from rmqclient.spark.scan.place import Place
from rmqclient.spark.scan.read_options import ReadOptions


def open_place(options: ReadOptions) -> Place:
    """Open the place of a read, for the driver.

    Raises as :func:`rmqclient.archive.view.open_view`; for a URL, ValueError and the errors of a cluster.
    """
    return _cluster(options) if options.is_cluster else store_place(options)


def kept_place(options: ReadOptions) -> Place:
    """Return the place of a read, for a task; a worker process of Spark keeps it open for the next task."""
    return _cluster(options) if options.is_cluster else kept_store_place(options)


def _cluster(options: ReadOptions) -> Place:
    from rmqclient.spark.cluster.cluster_queues import ClusterQueues

    return ClusterQueues(options)
