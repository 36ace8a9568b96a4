"""RocketMQ's own brokers at either end of replication: the logs are the same to the last byte, after kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient import Producer
from rmqclient.replication.asking.broker_client import BrokerClient
from rmqclient.replication.following import open_replica
from rmqclient.store import MessageStore, open_store
from tests.interop.cluster.clusters import CONF, started_cluster
from tests.interop.rocketmq import BROKER_4_9_7, START_S, Java, broker_server, free_broker_port, why_not
from tests.replication.pairs import Process, following, log_bytes, until

FILE = Path("commitlog", "00000000000000000000")

pytestmark = pytest.mark.skipif(bool(why_not(BROKER_4_9_7)), reason=why_not(BROKER_4_9_7))


def fill(place: str | MessageStore, first: int, count: int) -> None:
    """Send messages of many sizes."""
    with Producer(place) as producer:
        for number in range(first, first + count):
            producer.send("orders", b"%d;" % number * (1 + number % 400))


def begin_of(path: Path, count: int) -> bytes:
    """Return the first bytes of a file; nothing while it is missing."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        return file.read(count)


@pytest.mark.guarantee("G71")
def test_a_store_follows_a_master_of_rocketmq_through_its_kill(tmp_path: Path) -> None:
    with started_cluster(BROKER_4_9_7, tmp_path / "cluster", masters=1) as cluster:
        master = cluster.broker("broker-a")
        host, _, port = master.address.rpartition(":")
        ha = f"{host}:{int(port) + 1}"
        fill(cluster.url, 0, 300)
        with (
            BrokerClient(master.address) as broker,
            open_replica(tmp_path / "replica", ha, master.address) as replica,
            following(replica, (host, int(port) + 1), master.address),
        ):
            until(lambda: replica.state.published_to == broker.log_shape().end, "the replica has all", START_S)

            # When the master is killed, comes back, and goes on
            broker.close()
            master.server.kill()
            cluster.restart(master.server)
            fill(cluster.url, 300, 100)
            until(lambda: replica.state.published_to == broker.log_shape().end, "the replica has caught up", START_S)

            # Then both have the same log, and the messages can be read here
            assert log_bytes(replica) == begin_of(master.root / FILE, replica.state.published_to)
            queues = replica.topics.queues("orders")
            found = [replica.message_at(q, n).body for q in queues for n in range(replica.topics.max_offset(q))]
            assert sorted(int(body.partition(b";")[0]) for body in found) == list(range(400))


@pytest.mark.guarantee("G71")
def test_a_slave_of_rocketmq_follows_a_store_through_its_kill(tmp_path: Path) -> None:
    root, home = tmp_path / "primary", tmp_path / "slave"
    port = free_broker_port()
    listen = ("--listen", f"127.0.0.1:{port}", "--listen", f"127.0.0.1:{port - 2}")
    with Process("serve", str(root), *listen, "--ha-listen", f"127.0.0.1:{port + 1}"), open_store(root) as store:
        fill(store, 0, 300)
        names = f"127.0.0.1:{port}"
        conf = CONF.format(name="broker-a", broker_id=1, role="SLAVE", name_servers=names, root=home / "store")
        slave = broker_server(Java(BROKER_4_9_7, home), names, free_broker_port(), conf)
        copy = home / "store" / FILE

        def is_level() -> bool:
            end = store.state.published_to
            return begin_of(copy, end) == log_bytes(store, 0, end)

        try:
            slave.start()
            until(is_level, "the slave has all", START_S)
            until(
                lambda: b"orders" in begin_of(home / "store/config/topics.json", 1 << 20), "topics have come", START_S
            )

            # When the slave is killed, and comes back after more messages
            slave.kill()
            fill(store, 300, 100)
            slave.start()

            # Then its log is that of the store again
            until(is_level, "the slave has caught up", START_S)
        finally:
            slave.kill()
