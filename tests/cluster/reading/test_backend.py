"""The backend of a cluster: what closes it, what it shows of itself, and what it does not have."""

from __future__ import annotations

import pytest

from rmqclient import Producer
from rmqclient.backend import Backend
from rmqclient.cluster.backend import cluster_backend
from rmqclient.consuming.reader import Reader
from rmqclient.errors import NotOnCluster, StoreClosed
from tests.support.cluster.keeping_cluster import KeepingCluster


def test_a_user_that_is_given_a_backend_leaves_it_open(backend: Backend) -> None:
    Reader(backend).close()
    Producer(backend).close()
    backend.check_usable()
    backend.close()
    with pytest.raises(StoreClosed):
        backend.check_usable()


def test_a_backend_does_not_show_the_secret_of_its_url(kept: KeepingCluster, url: str) -> None:
    opened = cluster_backend(url.replace("://", "://key:s3cret@"))
    assert kept.cluster.address in repr(opened)
    assert "s3cret" not in repr(opened)
    opened.close()


def test_a_cluster_keeps_no_steps(backend: Backend) -> None:
    assert backend.steps is None
    with Producer(backend) as producer, pytest.raises(NotOnCluster):
        producer.signal("7F00000100002A9F0000000000000000", "approved", group="billing")
