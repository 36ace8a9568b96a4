"""RocketMQ's own brokers at either end of replication: the logs are the same to the last byte, after kills."""

from __future__ import annotations

import subprocess
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from rmqclient import Producer, PullConsumer
from rmqclient.replication.following import open_replica
from rmqclient.replication.primary_client.broker_client import BrokerClient
from rmqclient.store import MessageStore, open_store
from tests.interop.cluster.clusters import CONF, started_cluster
from tests.interop.rocketmq import (
    BROKER_4_9_7,
    BROKER_5_3_3,
    START_S,
    Java,
    Server,
    broker_server,
    free_broker_port,
    why_not,
)
from tests.replication.pairs import Process, following, log_bytes, until
from tests.support.lines import of_kind

FILE = Path("commitlog", "00000000000000000000")

pytestmark = pytest.mark.skipif(bool(why_not(BROKER_4_9_7, BROKER_5_3_3)), reason=why_not(BROKER_4_9_7, BROKER_5_3_3))


@pytest.fixture(params=[BROKER_4_9_7, BROKER_5_3_3])
def release(request: pytest.FixtureRequest) -> str:
    """Whose broker is at the other end."""
    return str(request.param)


@contextmanager
def slave_of(release: str, home: Path, primary: int, port: int, settings: str = "") -> Iterator[Server]:
    """Have a slave of the server at a port, which is its name server, too; it is not started."""
    names = f"127.0.0.1:{primary}"
    conf = CONF.format(name="broker-a", broker_id=1, role="SLAVE", name_servers=names, root=home / "store")
    slave = broker_server(Java(release, home), names, port, f"{conf}{settings}\n")
    try:
        yield slave
    finally:
        slave.kill()


def listening(port: int) -> tuple[str, ...]:
    """Return the options of a server that a slave can follow."""
    host = "127.0.0.1"
    return ("--listen", f"{host}:{port}", "--listen", f"{host}:{port - 2}", "--ha-listen", f"{host}:{port + 1}")


def has_topics(home: Path) -> bool:
    """Tell whether a slave knows the topic, for which it asks every 10 s; one of 5.3 every 60 s."""
    return b"orders" in begin_of(home / "store/config/topics.json", 1 << 20)


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
def test_a_store_follows_a_master_of_rocketmq_through_its_kill(release: str, tmp_path: Path) -> None:
    with started_cluster(release, tmp_path / "cluster", masters=1) as cluster:
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
            found = [replica.messages.at(q, n).body for q in queues for n in range(replica.topics.max_offset(q))]
            assert sorted(int(body.partition(b";")[0]) for body in found) == list(range(400))


@pytest.mark.guarantee("G71")
@pytest.mark.guarantee("G76")
@pytest.mark.guarantee("G78")
def test_a_slave_of_rocketmq_follows_a_store_through_its_kill_and_sends_wait_for_it(
    release: str, tmp_path: Path
) -> None:
    root, home, port = tmp_path / "primary", tmp_path / "slave", free_broker_port()
    waiting = ("--wait-for", "memory", "--on-lost", "degrade")
    with (
        Process("serve", str(root), *listening(port), *waiting),
        open_store(root) as store,
        Producer(store) as producer,
        slave_of(release, home, port, free_broker_port()) as slave,
    ):
        fill(store, 0, 300)
        copy = home / "store" / FILE

        def is_level() -> bool:
            end = store.state.published_to
            return begin_of(copy, end) == log_bytes(store, 0, end)

        # Given a slave that has all, and for which sends wait
        slave.start()
        until(is_level, "the slave has all", START_S)
        until(lambda: has_topics(home), "topics have come", START_S)
        until(lambda: producer.send("orders", b"0;").replicated, "a send is replicated", START_S)
        assert is_level()

        # When the slave is killed, sends say that it lacks them
        slave.kill()
        until(lambda: producer.send("orders", b"0;").replicated is False, "a send is not replicated", START_S)
        fill(store, 300, 100)

        # And when it has come back, its log is that of the store again
        slave.start()
        until(is_level, "the slave has caught up", START_S)
        until(lambda: producer.send("orders", b"0;").replicated, "a send is replicated again", START_S)
        assert is_level()


@pytest.mark.guarantee("G71")
def test_a_follower_of_a_master_of_rocketmq_goes_on_after_its_kill(release: str, tmp_path: Path) -> None:
    copy = tmp_path / "replica"
    with started_cluster(release, tmp_path / "cluster", masters=1) as cluster:
        master = cluster.broker("broker-a")
        host, _, port = master.address.rpartition(":")
        follow = ("replica", "follow", f"{host}:{int(port) + 1}", "--broker", master.address, "--store", str(copy))
        fill(cluster.url, 0, 300)
        with BrokerClient(master.address) as broker:
            # Given a follower that is killed three times while messages come
            for number in range(3):
                with Process(*follow), open_store(copy, housekeeping=False) as replica:
                    begun = replica.state.published_to
                    fill(cluster.url, 300 + 100 * number, 100)
                    until(lambda: replica.state.published_to > begun, "some of it has come", START_S)  # noqa: B023

            # When it starts once more
            with Process(*follow), open_store(copy, housekeeping=False) as replica:
                until(lambda: replica.state.published_to == broker.log_shape().end, "the replica has all", START_S)

                # Then both have the same log
                assert log_bytes(replica) == begin_of(master.root / FILE, replica.state.published_to)


@pytest.mark.guarantee("G71")
def test_a_slave_of_rocketmq_goes_on_when_our_server_was_killed(release: str, tmp_path: Path) -> None:
    root, home, port = tmp_path / "primary", tmp_path / "slave", free_broker_port()
    copy = home / "store" / FILE
    with open_store(root) as store, slave_of(release, home, port, free_broker_port()) as slave:

        def is_level() -> bool:
            end = store.state.published_to
            return begin_of(copy, end) == log_bytes(store, 0, end)

        # Given a slave that has all, and a server that is killed while it sends more, which others go on sending
        with Process("serve", str(root), *listening(port)):
            fill(store, 0, 300)
            slave.start()
            until(is_level, "the slave has all", START_S)
            fill(store, 300, 200)
        fill(store, 500, 100)

        # When the server is back, then the slave has the same log again
        with Process("serve", str(root), *listening(port)):
            until(is_level, "the slave has caught up", START_S)
            fill(store, 600, 100)
            until(is_level, "the slave has what came then", START_S)


@pytest.mark.guarantee("G85")
def test_a_java_consumer_goes_on_at_the_replica_of_a_master_of_rocketmq_that_is_gone(
    release: str, tmp_path: Path
) -> None:
    copy = tmp_path / "replica"
    with started_cluster(release, tmp_path / "cluster", masters=1) as cluster:
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


@contextmanager
def far_behind(release: str, tmp_path: Path, count: int) -> Iterator[tuple[Process, MessageStore, Java, str]]:
    """Have a server, its slave that has all, and a group that stands at the first of so many messages.

    Both say that every message is an old one, so a client reads at the slave.
    """
    root, home, port, slave_port = tmp_path / "primary", tmp_path / "slave", free_broker_port(), free_broker_port()
    far = ("--replica", f"127.0.0.1:{slave_port}", "--memory-percent", "0")
    with (
        Process("serve", str(root), *listening(port), *far) as server,
        open_store(root) as store,
        slave_of(release, home, port, slave_port, "accessMessageInMemoryMaxRatio=0") as slave,
    ):
        fill(store, 0, count)
        slave.start()
        content = log_bytes(store)
        until(lambda: begin_of(home / "store" / FILE, len(content)) == content, "the slave has all", START_S)
        until(lambda: has_topics(home), "topics have come", START_S)
        with PullConsumer(store, group="readers") as reader:
            for queue in reader.queues("orders"):
                reader.commit(queue, 0)
        yield server, store, slave.java, f"127.0.0.1:{port}"


@pytest.mark.guarantee("G85")
def test_a_java_consumer_that_is_far_behind_goes_on_at_a_slave_of_rocketmq(release: str, tmp_path: Path) -> None:
    with far_behind(release, tmp_path, 1_000) as (_, store, java, names):
        lines = java.run("consume", names, "readers", 1_000, "orders")

        # Then it gets each message once, and most of them from the slave
        assert len({line["body"] for line in of_kind(lines, "message")}) == 1_000
        slots = [store.groups.find("readers", store.topics.slot(q)) for q in store.topics.queues("orders")]
        assert 0 < sum(slot.load("delivered") for slot in slots if slot is not None) < 500


@pytest.mark.guarantee("G85")
def test_a_java_consumer_that_reads_at_a_slave_of_rocketmq_reads_on_when_its_primary_is_killed(
    release: str, tmp_path: Path
) -> None:
    with far_behind(release, tmp_path, 10_000) as (server, _, java, names):
        # Given a consumer that the primary has sent to the slave: it holds a thousand messages of a queue at most
        command = java.command("interop.Interop", "consume", names, "readers", 10_000, "orders")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reading:
            assert reading.stdout is not None
            before = [reading.stdout.readline() for _ in range(500)]

            # When the primary is killed, which is the name server, too
            server.kill()
            after = reading.stdout.read().splitlines()

        # Then every message comes
        found = [orjson.loads(line) for line in [*before, *after] if line.startswith("{")]
        assert len({line["body"] for line in of_kind(found, "message")}) == 10_000
