"""A cluster of RocketMQ on loopback: name servers and brokers as processes of their own.

Every server keeps its ports and its directory for as long as the cluster lives, so one that was killed comes back as
what it was. All of them end with the context, or with the process that started them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.interop.cluster.questions import cluster_info
from tests.interop.rocketmq import (
    SMALL_JVM,
    START_S,
    Java,
    RocketMQFailed,
    Server,
    broker_server,
    free_broker_port,
    name_server,
)
from tests.support.lines import Line

CONF = """brokerClusterName=DefaultCluster
brokerName={name}
brokerId={broker_id}
brokerRole={role}
brokerIP1=127.0.0.1
namesrvAddr={name_servers}
storePathRootDir={root}
storePathCommitLog={root}/commitlog
mappedFileSizeCommitLog=67108864
autoCreateTopicEnable=true
enablePropertyFilter=true
slaveReadEnable=true
registerNameServerPeriod=10000
transactionTimeOut=2000
transactionCheckInterval=3000
waitTimeMillsInSendQueue=3000
"""
"""Short times, so that tests need not wait long, and a patient send queue: hosts of tests are slow."""


@dataclass(slots=True)
class Node:
    """A broker of a cluster."""

    name: str
    broker_id: int
    address: str
    root: Path
    server: Server


@dataclass(slots=True)
class Cluster:
    """A cluster that runs. One that was started elsewhere has addresses only, and none of it can be killed."""

    java: Java
    addresses: tuple[str, ...]
    """Of the name servers, ``host:port``."""
    name_servers: list[Server] = field(default_factory=list)
    brokers: list[Node] = field(default_factory=list)

    @property
    def url(self) -> str:
        """What an application is given instead of a directory."""
        return f"rocketmq://{','.join(self.addresses)}"

    def run(self, command: str, *arguments: object) -> list[Line]:
        """Run a command of the small Java program against this cluster. Raises RocketMQFailed."""
        return self.java.run(command, ";".join(self.addresses), *arguments)

    def broker(self, name: str, broker_id: int = 0) -> Node:
        """Return a broker by its name; 0 is the master."""
        return next(node for node in self.brokers if (node.name, node.broker_id) == (name, broker_id))

    def restart(self, server: Server) -> None:
        """Start a server again that was killed or stopped, and wait until every name server knows every broker."""
        server.start()
        self.wait_until_complete()

    def wait_until_complete(self) -> None:
        """Return when every running name server knows every running broker. Raises RocketMQFailed.

        A server says that it is up before that: a broker registers up to 10 s later.
        """
        alive = [a for a, s in zip(self.addresses, self.name_servers, strict=True) if s.is_running]
        wanted = {node.address for node in self.brokers if node.server.is_running}
        deadline = time.monotonic() + START_S
        while missing := {(a, node) for a in alive for node in wanted if f'"{node}"' not in _told(a)}:
            if time.monotonic() > deadline:
                raise RocketMQFailed(f"after {START_S:.0f} s these name servers do not know a broker: {missing}")
            time.sleep(0.1)


@contextmanager
def started_cluster(
    release: str,
    scratch: Path,
    *,
    name_servers: int = 1,
    masters: int = 2,
    slaves: int = 0,
    role: str = "ASYNC_MASTER",
    settings: str = "",
    jvm: tuple[str, ...] = SMALL_JVM,
) -> Iterator[Cluster]:
    """Run a cluster of a release, such as ``BROKER_4_9_7``, whose servers live in ``scratch``.

    Masters are ``broker-a``, ``broker-b`` and so on, with this ``role``; the first ``slaves`` of them get a slave each.
    ``settings`` are lines of every ``broker.conf``, which win over those of :data:`CONF`; ``jvm`` are the options of
    every Java. Raises RocketMQFailed.
    """
    ports = [free_broker_port() for _ in range(name_servers)]
    addresses = tuple(f"127.0.0.1:{port}" for port in ports)
    java = Java(release, scratch, jvm)
    cluster = Cluster(java, addresses)
    with ExitStack() as stack:
        for number, port in enumerate(ports):
            cluster.name_servers.append(name_server(replace(java, home=scratch / f"namesrv-{number}"), port))
        for number in range(masters):
            name = f"broker-{chr(ord('a') + number)}"
            for broker_id in range(2 if number < slaves else 1):
                cluster.brokers.append(_broker(cluster, name, broker_id, "SLAVE" if broker_id else role, settings))
        for server in (*cluster.name_servers, *(node.server for node in cluster.brokers)):
            stack.callback(server.kill)
            server.start()
        cluster.wait_until_complete()
        yield cluster


def running_cluster(release: str, address: str, scratch: Path) -> Cluster:
    """Return a cluster that runs already, by its name servers: ``host:port``, more of them with commas between."""
    return Cluster(Java(release, scratch), tuple(address.split(",")))


def _broker(cluster: Cluster, name: str, broker_id: int, role: str, settings: str) -> Node:
    home = cluster.java.home / f"{name}-{broker_id}"
    port = free_broker_port()
    conf = CONF.format(
        name=name,
        broker_id=broker_id,
        role=role,
        name_servers=";".join(cluster.addresses),
        root=home / "store",
    )
    server = broker_server(replace(cluster.java, home=home), ";".join(cluster.addresses), port, f"{conf}{settings}\n")
    return Node(name, broker_id, f"127.0.0.1:{port}", home / "store", server)


def _told(name_server_address: str) -> str:
    try:
        return cluster_info(name_server_address)
    except OSError:
        return ""
