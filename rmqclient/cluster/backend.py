"""Cluster backend: the backend of a RocketMQ cluster. It wires the parts of this folder."""

from __future__ import annotations

from rmqclient.backend.backend import Backend
from rmqclient.backend.limits import Limits
from rmqclient.cluster.address.state_directory import cluster_directory
from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.reading.alone import Alone
from rmqclient.cluster.reading.finding import Finding
from rmqclient.cluster.reading.groups import Groups
from rmqclient.cluster.reading.open_transactions import OpenTransactions
from rmqclient.cluster.reading.queues import Queues
from rmqclient.cluster.reading.topics import Topics
from rmqclient.cluster.sending.producers import ClusterProducers


def cluster_backend(url: str) -> Backend:
    """Return the backend of the cluster of a URL, whose ``close`` leaves the cluster."""
    client, limits = ClusterClient(ClusterURL.parse(url)), Limits()
    topics, queues = Topics(client), Queues(client)
    finding = Finding(client, topics)
    return Backend(
        root=url,
        namespace=client.url.namespace,
        directory=cluster_directory("clusters", client.url.name_servers),
        limits=limits,
        topics=topics,
        queues=queues,
        messages=finding,
        groups=Groups(client, queues),
        producers=ClusterProducers(client, limits),
        open_transactions=OpenTransactions(client, queues, finding),
        alone=Alone(client).keep_others_out,
        check_usable=client.check_usable,
        close=client.close,
    )
