"""RocketMQ's own brokers at either end of replication: the logs are the same to the last byte, after kills."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest

from rmqclient import Producer, PullConsumer
from rmqclient.replication.asking.broker_client import BrokerClient
from rmqclient.replication.following import open_replica
from rmqclient.store import MessageStore, open_store
from tests.interop.cluster.clusters import CONF, started_cluster
from tests.interop.rocketmq import BROKER_4_9_7, START_S, Java, broker_server, free_broker_port, why_not
from tests.replication.pairs import Process, following, log_bytes, until
from tests.support.lines import of_kind

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


@pytest.mark.guarantee("G85")
def test_a_java_consumer_goes_on_at_the_replica_of_a_master_of_rocketmq_that_is_gone(tmp_path: Path) -> None:
    copy = tmp_path / "replica"
    with started_cluster(BROKER_4_9_7, tmp_path / "cluster", masters=1) as cluster:
        master = cluster.broker("broker-a")
        host, _, port = master.address.rpartition(":")
        address = (host, int(port) + 1)

        # Given a group that has finished the first half of what a replica of its master has
        fill(cluster.url, 0, 100)
        assert len(of_kind(cluster.run("consume", "readers", 100, "orders"), "message")) == 100
        fill(cluster.url, 100, 100)
        with (
            BrokerClient(master.address) as broker,
            open_replica(copy, f"{address[0]}:{address[1]}", master.address) as replica,
            following(replica, address, master.address),
        ):
            until(lambda: replica.state.published_to == broker.log_shape().end, "the replica has all", START_S)
            until(lambda: finished(replica) == 100, "the offsets have come", START_S)

        # When the master and its name server are gone
        for server in (master.server, *cluster.name_servers):
            server.kill()
        with Process("serve", str(copy), "--read-only", "--listen", "127.0.0.1:0") as served:
            lines = cluster.java.run("consume", served.ready["name_server"], "readers", 100, "orders")

    # Then the group gets the second half at the replica
    bodies = [b64decode(line["body"]) for line in of_kind(lines, "message")]
    assert sorted(int(body.partition(b";")[0]) for body in bodies) == list(range(100, 200))


def finished(replica: MessageStore) -> int:
    """Return how many messages the group has finished, as far as the replica knows."""
    slots = [replica.groups.find("readers", replica.topics.slot(q)) for q in replica.topics.queues("orders")]
    return sum(slot.committed_offset for slot in slots if slot is not None)


@pytest.mark.guarantee("G85")
def test_a_java_consumer_that_is_far_behind_goes_on_at_a_slave_of_rocketmq(tmp_path: Path) -> None:
    root, home, port, slave_port = tmp_path / "primary", tmp_path / "slave", free_broker_port(), free_broker_port()
    names = f"127.0.0.1:{port}"
    listen = ("--listen", names, "--listen", f"127.0.0.1:{port - 2}", "--ha-listen", f"127.0.0.1:{port + 1}")
    far = ("--replica", f"127.0.0.1:{slave_port}", "--memory-percent", "0")
    with Process("serve", str(root), *listen, *far), open_store(root) as store:
        fill(store, 0, 1_000)
        conf = CONF.format(name="broker-a", broker_id=1, role="SLAVE", name_servers=names, root=home / "store")
        java = Java(BROKER_4_9_7, home)
        slave = broker_server(java, names, slave_port, f"{conf}accessMessageInMemoryMaxRatio=0\n")
        try:
            slave.start()
            content = log_bytes(store)
            until(lambda: begin_of(home / "store" / FILE, len(content)) == content, "the slave has all", START_S)
            topics = home / "store/config/topics.json"
            until(lambda: b"orders" in begin_of(topics, 1 << 20), "topics have come", START_S)

            # When a group reads that stands at the first message
            with PullConsumer(store, group="readers") as reader:
                for queue in reader.queues("orders"):
                    reader.commit(queue, 0)
            lines = java.run("consume", names, "readers", 1_000, "orders")
        finally:
            slave.kill()

        # Then it gets each message once, and most of them from the slave
        assert len({line["body"] for line in of_kind(lines, "message")}) == 1_000
        slots = [store.groups.find("readers", store.topics.slot(q)) for q in store.topics.queues("orders")]
        assert 0 < sum(slot.load("delivered") for slot in slots if slot is not None) < 500
