"""Connections to real brokers: routes, keys that sign requests, and TLS."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.errors import BrokerUnreachable, NameServerUnreachable, NoPermission, RequestNotSupported, UnknownTopic
from rmqclient.remoting.bodies import MASTER_ID
from rmqclient.remoting.table import RequestCode, request, response_fields
from rmqclient.store import MessageQueue
from tests.interop.cluster.behaviour.place import eventually
from tests.interop.cluster.clusters import Cluster, started_cluster
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3
from tests.support.cluster.certificates import Authority
from tests.support.cluster.leftovers import nothing_left_behind

VERSIONS = {BROKER_4_9_7: 407, BROKER_5_3_3: 479}

ACCOUNTS = """globalWhiteRemoteAddresses: []
accounts:
- accessKey: ourselves
  secretKey: very-secret
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - {topic}=PUB|SUB
"""

AUTHENTICATION = """authenticationEnabled=true
authenticationProvider=org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider
authenticationMetadataProvider=org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider
initAuthenticationUser={"username":"ourselves","password":"very-secret"}
innerClientAuthenticationCredentials={"accessKey":"ourselves","secretKey":"very-secret"}
"""


@contextmanager
def client_of(cluster: Cluster, *, keys: str = "", rest: str = "") -> Iterator[ClusterClient]:
    """Open a client, which must leave nothing behind."""
    with nothing_left_behind():
        hosts = ",".join(cluster.addresses)
        client = ClusterClient(ClusterURL.parse(f"rocketmq://{keys}{hosts}{rest}"))
        try:
            yield client
        finally:
            client.close()


def max_offset(client: ClusterClient, topic: str, address: str) -> int:
    asked = request(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=0)
    offset: int = response_fields(RequestCode.GET_MAX_OFFSET, client.call(address, asked))["offset"]
    return offset


def send(client: ClusterClient, topic: str, address: str, body: bytes = b"a message") -> int:
    """Send a message as it is, and return its queue offset."""
    asked = request(
        RequestCode.SEND_MESSAGE_V2,
        body,
        producerGroup="tills",
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=0,
        sysFlag=0,
        bornTimestamp=1_700_000_000_000,
        flag=0,
        properties="KEYS\x01k\x02TAGS\x01größer",
        reconsumeTimes=0,
        unitMode=False,
        batch=False,
    )
    offset: int = response_fields(RequestCode.SEND_MESSAGE_V2, client.call(address, asked))["queueOffset"]
    return offset


def known_soon(client: ClusterClient, topic: str) -> list[MessageQueue]:
    """Return the queues of a topic that a broker has just made; it tells the name server without waiting."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return client.routes.publish_queues(topic)
        except UnknownTopic:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_routes_of_real_name_servers(cluster: Cluster, name: Callable[[str], str]) -> None:
    with client_of(cluster) as client:
        masters = client.brokers.masters()
        assert set(masters) == {"broker-a", "broker-b"}
        assert len(client.routes.publish_queues("TBW102")) == 16
        assert client.brokers.address("broker-b") == masters["broker-b"]
        topic = name("Routed")
        with pytest.raises(UnknownTopic):
            client.routes.of(topic)
        assert send(client, topic, masters["broker-a"]) == 0
        assert [queue.broker_name for queue in known_soon(client, topic)] == ["broker-a"] * 4
        assert client.routes.of(topic).brokers[0].addresses[MASTER_ID] == masters["broker-a"]


def test_brokers_tell_their_version_and_know_the_members(cluster: Cluster, name: Callable[[str], str]) -> None:
    with client_of(cluster) as client:
        client.routes.of("TBW102")
        client.heartbeats.add_producer(name("tills"))
        for address in client.brokers.masters().values():
            assert client.heartbeats.version(address) == VERSIONS[cluster.java.variant]
            asked = request(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup=name("tills"))
            assert client.client_id.encode() in client.call(address, asked).body


def test_the_question_to_a_silent_peer_is_answered_by_brokers_and_name_servers(cluster: Cluster) -> None:
    with client_of(cluster) as client:
        probe = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
        assert client.call(cluster.addresses[0], probe).body
        with pytest.raises(RequestNotSupported):
            client.call(client.brokers.address("broker-a"), probe)


@pytest.mark.parametrize("release", [BROKER_4_9_7, BROKER_5_3_3])
def test_keys_sign_requests_and_wrong_ones_are_refused(
    release: str, tmp_path: Path, name: Callable[[str], str]
) -> None:
    topic = name("Signed")
    conf = tmp_path / "broker-a-0" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS.format(topic=topic), encoding="utf-8")
    settings = "aclEnable=true" if release == BROKER_4_9_7 else AUTHENTICATION
    with started_cluster(release, tmp_path, masters=1, settings=settings) as cluster:
        with client_of(cluster, keys="ourselves:very-secret@") as client:
            address = client.brokers.address("broker-a")
            assert send(client, topic, address) == 0
            assert send(client, topic, address, b"\x00\xff" * 1000) == 1
            eventually(lambda: max_offset(client, topic, address) == 2, "the second message in its queue")
            if release == BROKER_4_9_7:
                with pytest.raises(NoPermission):
                    send(client, name("Forbidden"), address)
        for keys in ("", "ourselves:wrong-secret@", "nobody-known:very-secret@"):
            with client_of(cluster, keys=keys) as client:
                address = client.brokers.address("broker-a")
                with pytest.raises(NoPermission) as raised:
                    send(client, topic, address)
                assert "secret" not in str(raised.value)


@pytest.mark.parametrize("release", [BROKER_4_9_7, BROKER_5_3_3])
def test_tls_with_real_servers(
    release: str, tmp_path: Path, name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    own = authority.certificate("server")
    options = [
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.certPath={own.cert_file}",
        f"-Dtls.server.keyPath={own.key_file}",
    ]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(options))
    with started_cluster(release, tmp_path / "servers", masters=1) as cluster:
        for rest in ("", "?tls=true", f"?ca_file={authority.ca_file}&check_hostname=true"):
            with client_of(cluster, rest=rest) as client:  # both sides of the one port
                assert send(client, name("Secured"), client.brokers.address("broker-a"), b"x" * 1_000_000) >= 0
        stranger = Authority(tmp_path, "stranger")
        untrusting = client_of(cluster, rest=f"?ca_file={stranger.ca_file}")
        with untrusting as client, pytest.raises(NameServerUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
            client.routes.of("TBW102")

        broker = cluster.broker("broker-a")
        broker.server.stop()
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join([*options, "-Dtls.server.mode=enforcing"]))
        cluster.restart(broker.server)
        with client_of(cluster, rest=f"?ca_file={authority.ca_file}") as client:
            assert send(client, name("Secured"), broker.address) >= 0
        with client_of(cluster) as client, pytest.raises(BrokerUnreachable, match="TLS"):
            send(client, name("Secured"), broker.address)


@pytest.mark.parametrize("release", [BROKER_4_9_7, BROKER_5_3_3])
def test_a_client_outlives_the_only_broker_and_the_only_name_server(
    release: str, tmp_path: Path, name: Callable[[str], str]
) -> None:
    topic = name("Outliving")
    with started_cluster(release, tmp_path, masters=1) as cluster, client_of(cluster) as client:
        broker, (name_server,) = cluster.broker("broker-a"), cluster.name_servers
        assert send(client, topic, broker.address) == 0
        assert len(known_soon(client, topic)) == 4
        client.heartbeats.add_producer(name("tills"))

        broker.server.kill()
        begun = time.monotonic()
        for _ in range(20):
            with pytest.raises(BrokerUnreachable):
                send(client, topic, broker.address)
            client.routes.forget(topic)
            assert len(client.routes.publish_queues(topic)) == 4  # the name server has forgotten it
        assert time.monotonic() - begun < 10
        cluster.restart(broker.server)
        assert send_patiently(client, topic, broker.address) == 1
        wait_for_member(client, name("tills"), broker.address)

        name_server.kill()
        client.routes.forget(topic)
        assert len(client.routes.publish_queues(topic)) == 4
        assert send(client, topic, broker.address) == 2
        with pytest.raises(NameServerUnreachable):
            client.routes.of(name("Unknown"))
        cluster.restart(name_server)
        with pytest.raises(UnknownTopic):
            client.routes.of(name("Unknown"))


def send_patiently(client: ClusterClient, topic: str, address: str) -> int:
    """Send as soon as the broker can be reached; its address is left alone for a moment after failures."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return send(client, topic, address)
        except BrokerUnreachable:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def wait_for_member(client: ClusterClient, group: str, address: str) -> None:
    """Return when a broker knows this client as a member of a producer group, without a call to tell it so."""
    asked = request(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup=group)
    deadline = time.monotonic() + 10  # much less than the time between two heartbeats
    while client.client_id.encode() not in client.call(address, asked, also=range(1, 256)).body:
        assert time.monotonic() < deadline
        time.sleep(0.05)
