"""Routes and name servers: what is asked, how long it is kept, and what happens when they are gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rmqclient.cluster.client import routes as routes_module
from rmqclient.errors import AnswerError, BrokerUnreachable, NameServerUnreachable, UnknownTopic
from rmqclient.remoting.bodies import ClusterInfo, RouteBroker, RouteQueue, TopicRoute
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, request_fields, response
from rmqclient.store import MessageQueue
from tests.cluster.client.conftest import client_of
from tests.support.cluster.raw_peer import raw_peer, stay_silent
from tests.support.cluster.scripted_cluster import scripted_cluster
from tests.support.host.ports import address_of, nobody_listens

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def test_the_queues_of_a_topic_come_in_rocketmqs_order() -> None:
    with (
        scripted_cluster(topics={"orders": 2}, brokers=("b-2", "b-10")) as cluster,
        client_of(cluster.address) as client,
    ):
        expected = [MessageQueue("orders", queue_id, name) for name in ("b-10", "b-2") for queue_id in (0, 1)]
        assert client.routes.publish_queues("orders") == expected
        assert client.routes.read_queues("orders") == expected
        assert client.brokers.address("b-10") == cluster.brokers["b-10"]
        assert len(cluster.asked(ROUTE)) == 1


def test_permissions_masters_and_order_decide_which_queues_there_are() -> None:
    route = TopicRoute(
        brokers=(RouteBroker("a", "C", {0: "h:1", 1: "h:2"}), RouteBroker("b", "C", {1: "h:3"})),
        queues=(RouteQueue("a", 3, 2, 6), RouteQueue("b", 1, 1, 6), RouteQueue("gone", 1, 1, 6)),
    )
    read_only = TopicRoute(route.brokers, (RouteQueue("a", 3, 2, 4),))
    ordered = TopicRoute(route.brokers, route.queues, order_conf="a:1;b:1")
    bodies = {"T": route, "R": read_only, "O": ordered}

    def routed(asked: Frame) -> Frame:
        return response(asked, body=bodies[request_fields(asked)["topic"]].encode())

    with scripted_cluster({ROUTE: routed}) as cluster, client_of(cluster.address) as client:
        routes = client.routes
        assert routes.publish_queues("T") == [MessageQueue("T", 0, "a"), MessageQueue("T", 1, "a")]
        assert [queue.queue_id for queue in routes.read_queues("T")] == [0, 1, 2, 0]
        assert routes.publish_queues("R") == []
        assert len(routes.read_queues("R")) == 3
        assert routes.publish_queues("O") == [MessageQueue("O", 0, "a")]
        assert client.brokers.read_address("a") == "h:1"
        assert client.brokers.read_address("a", 1) == "h:2"
        assert client.brokers.read_address("a", 9) == "h:1"
        assert client.brokers.read_address("b") == "h:3"
        with pytest.raises(BrokerUnreachable, match="'b' has no master"):
            client.brokers.address("b")


def test_a_topic_that_nobody_knows_is_unknown() -> None:
    with scripted_cluster(topics={}) as cluster, client_of(cluster.address) as client:
        with pytest.raises(UnknownTopic, match="'orders'"):
            client.routes.of("orders")
        cluster.state.topics = {"orders": 1}
        assert len(client.routes.publish_queues("orders")) == 1


def test_topics_are_asked_for_with_the_namespace_and_named_without() -> None:
    with scripted_cluster(topics={"N%orders": 1}) as cluster, client_of(cluster.address, rest="/N") as client:
        assert client.routes.publish_queues("orders") == [MessageQueue("orders", 0, "broker-a")]


def test_a_route_is_kept_for_a_while_and_asked_for_again_when_someone_doubts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted_cluster(topics={"orders": 1}) as cluster, client_of(cluster.address) as client:
        for _ in range(3):
            assert len(client.routes.publish_queues("orders")) == 1
        cluster.state.topics = {"orders": 2}
        assert len(client.routes.publish_queues("orders")) == 1
        client.routes.forget("orders")
        assert len(client.routes.publish_queues("orders")) == 2
        cluster.state.topics = {"orders": 3}
        assert len(client.routes.of("orders", fresh=True).queues) == 1
        assert len(client.routes.publish_queues("orders")) == 3
        assert len(cluster.asked(ROUTE)) == 3

        monkeypatch.setattr(routes_module, "FRESH_S", 0.0)
        client.routes.of("orders", fresh=True)
        cluster.state.topics = {"orders": 4}
        assert len(client.routes.publish_queues("orders")) == 4


def test_a_known_route_outlives_its_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "FRESH_S", 0.0)
    with scripted_cluster(topics={"orders": 1}) as cluster, client_of(cluster.address, rest="?timeout=2") as client:
        assert len(client.routes.publish_queues("orders")) == 1
        cluster.stop("broker-a")
        for _ in range(3):
            assert len(client.routes.publish_queues("orders")) == 1
        client.routes.forget("orders")
        assert len(client.routes.publish_queues("orders")) == 1
        with pytest.raises(NameServerUnreachable, match="refused"):
            client.routes.of("others")


def test_a_broker_that_has_left_a_route_is_looked_for_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "RETRY_S", 0.0)
    with scripted_cluster(brokers=("a", "b")) as cluster, client_of(cluster.address) as client:

        def brokers() -> set[str]:
            return {queue.broker_name for queue in client.routes.read_queues("orders")}

        assert brokers() == {"a", "b"}
        address = cluster.state.brokers.pop("b")
        client.routes.forget("orders")
        for _ in range(3):
            assert brokers() == {"a"}
        cluster.state.brokers["b"] = address
        assert brokers() == {"a", "b"}
        asked = len(cluster.asked(ROUTE))
        assert brokers() == {"a", "b"}
        assert len(cluster.asked(ROUTE)) == asked


def test_a_master_that_has_left_a_route_is_looked_for_while_its_slave_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "RETRY_S", 0.0)
    addresses = {0: "127.0.0.1:9", 1: "127.0.0.1:10"}

    def routed(asked: Frame) -> Frame:
        route = TopicRoute((RouteBroker("a", "C", dict(addresses)),), (RouteQueue("a", 1, 1),))
        return response(asked, body=route.encode())

    with scripted_cluster({ROUTE: routed}) as cluster, client_of(cluster.address) as client:
        # Given a broker with a master and a slave
        assert len(client.routes.publish_queues("orders")) == 1
        assert client.brokers.has_master("a")
        # When the master leaves
        del addresses[0]
        client.routes.forget("orders")
        # Then the slave is read, and the master found when it is back
        assert (client.routes.publish_queues("orders"), len(client.routes.read_queues("orders"))) == ([], 1)
        assert not client.brokers.has_master("a")
        addresses[0] = "127.0.0.1:9"
        assert len(client.routes.publish_queues("orders")) == 1
        assert client.brokers.has_master("a")


def test_threads_that_learn_of_brokers_at_once_forget_none() -> None:
    with scripted_cluster() as cluster, client_of(cluster.address) as client:

        class Slow(dict[str, dict[int, str]]):
            """Brokers, of which another thread learns more while these are read."""

            def keys(self) -> Any:
                other = threading.Thread(target=client.brokers.learn, args=({"b": {0: "h:2"}},))
                other.start()
                other.join(10)
                return super().keys()

            def __iter__(self) -> Iterator[str]:
                return super().__iter__()

        client.brokers.learn(Slow(a={0: "h:1"}))
        assert (client.brokers.address("a"), client.brokers.address("b")) == ("h:1", "h:2")


def test_a_broker_that_stays_away_is_not_looked_for_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "RETRY_S", 0.0)
    monkeypatch.setattr(routes_module, "MISSING_S", 0.0)
    with scripted_cluster(brokers=("a", "b")) as cluster, client_of(cluster.address) as client:
        client.routes.of("orders")
        del cluster.state.brokers["b"]
        client.routes.forget("orders")
        client.routes.of("orders")
        asked = len(cluster.asked(ROUTE))
        client.routes.of("orders")
        assert len(cluster.asked(ROUTE)) == asked


def test_a_topic_that_was_deleted_is_unknown_though_it_was_known() -> None:
    with scripted_cluster(topics={"orders": 1}) as cluster, client_of(cluster.address) as client:
        assert len(client.routes.publish_queues("orders")) == 1
        cluster.state.topics = {}
        assert len(client.routes.publish_queues("orders")) == 1
        client.routes.forget("orders")
        for _ in range(2):
            with pytest.raises(UnknownTopic):
                client.routes.publish_queues("orders")


def test_a_name_server_or_broker_that_restarts_takes_no_route_away() -> None:
    nobody = ClusterInfo().encode()
    with scripted_cluster(topics={"orders": 1}) as cluster, client_of(cluster.address) as client:
        assert len(client.routes.publish_queues("orders")) == 1
        cluster.state.topics = {}
        cluster.script[RequestCode.GET_BROKER_CLUSTER_INFO.value] = lambda asked: response(asked, body=nobody)
        client.routes.forget("orders")
        assert len(client.routes.publish_queues("orders")) == 1
        cluster.state.topics = {"orders": 2}
        client.routes.forget("orders")
        assert len(client.routes.publish_queues("orders")) == 2


def test_a_broker_that_cannot_be_reached_is_a_reason_to_ask_again() -> None:
    with scripted_cluster(brokers=("a", "b")) as cluster, client_of(cluster.address) as client:
        client.routes.of("orders")
        gone = client.brokers.address("b")
        cluster.stop("b")
        del cluster.state.brokers["b"]
        with pytest.raises(BrokerUnreachable):
            client.call(gone, request(RequestCode.GET_BROKER_CONFIG))
        assert {queue.broker_name for queue in client.routes.publish_queues("orders")} == {"a"}


def test_the_next_name_server_is_asked_when_one_is_gone_and_is_asked_first_from_then_on() -> None:
    with scripted_cluster(topics={"orders": 1}) as cluster:
        for _ in range(8):  # whichever of them is asked first
            with (
                nobody_listens() as gone,
                nobody_listens() as other,
                client_of(address_of(gone), cluster.address, address_of(other)) as client,
            ):
                assert len(client.routes.publish_queues("orders")) == 1
                asked = len(cluster.asked(ROUTE))
                for number in range(5):
                    with pytest.raises(UnknownTopic):
                        client.routes.of(f"other-{number}")
                assert len(cluster.asked(ROUTE)) == asked + 5


def test_a_silent_name_server_costs_one_timeout_and_then_nothing() -> None:
    with (
        scripted_cluster(topics={"orders": 1}) as cluster,
        raw_peer(stay_silent) as silent,
        client_of(silent.address, cluster.address, rest="?timeout=0.3") as client,
    ):
        begun = time.monotonic()
        for _ in range(20):
            client.routes.of("orders", fresh=True)
        assert time.monotonic() - begun < 3


def test_silent_name_servers_together_cost_one_timeout() -> None:
    with (
        raw_peer(stay_silent) as one,
        raw_peer(stay_silent) as two,
        raw_peer(stay_silent) as three,
        client_of(one.address, two.address, three.address, rest="?timeout=1") as client,
    ):
        begun = time.monotonic()
        with pytest.raises(NameServerUnreachable):
            client.routes.of("orders")
        assert time.monotonic() - begun < 3


@pytest.mark.parametrize("first", range(3))
def test_a_slow_name_server_has_all_the_time_when_the_others_are_gone(first: int) -> None:
    route = TopicRoute((RouteBroker("a", "C", {0: "h:1"}),), (RouteQueue("a", 1, 1, 6),)).encode()
    asked: list[Frame] = []

    def answer_late(frame: Frame) -> None:
        if request_fields(frame)["topic"] == "orders":
            asked.append(frame)
            threading.Timer(2.5, slow.answer_to, (frame, response(frame, body=route))).start()

    with (
        scripted_cluster({ROUTE: answer_late}) as slow,
        nobody_listens() as gone,
        nobody_listens() as other,
        client_of(address_of(gone), slow.address, address_of(other), rest="?timeout=4.5") as client,
    ):
        # Given a name server that needs more than half of the time, and two that are gone, whichever is asked first
        client.name_servers._current = first
        # When a route is asked for, then the slow one is asked once, and waited for
        assert len(client.routes.publish_queues("orders")) == 1
        assert len(asked) == 1
        # And it is asked first from then on
        assert client.name_servers._current == 1


def test_all_name_servers_gone_is_one_error_that_names_each() -> None:
    with nobody_listens() as one, nobody_listens() as other:
        hosts = [address_of(one), address_of(other)]
        with client_of(*hosts, rest="?timeout=2") as client, pytest.raises(NameServerUnreachable) as raised:
            client.routes.of("orders")
    assert all(host in str(raised.value) for host in hosts)


def test_a_topic_that_is_not_known_waits_for_a_name_server_that_has_just_restarted() -> None:
    with scripted_cluster() as cluster, client_of(cluster.address, rest="?timeout=10") as client:
        cluster.stop("broker-a")
        with pytest.raises(NameServerUnreachable, match="refused"):
            client.name_servers.call(request(RequestCode.GET_BROKER_CLUSTER_INFO))
        cluster.start("broker-a")  # the client does not ask it again at once
        assert len(client.routes.publish_queues("orders")) == 4


def test_masters_are_those_of_the_cluster() -> None:
    with scripted_cluster(brokers=("a", "b")) as cluster, client_of(cluster.address) as client:
        assert client.brokers.masters() == cluster.brokers


def test_while_one_thread_asks_the_others_go_on_with_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_again, go_on = threading.Event(), threading.Event()
    with scripted_cluster(topics={"orders": 1}) as cluster, client_of(cluster.address, rest="?timeout=10") as client:
        monkeypatch.setattr(routes_module, "FRESH_S", 0.0)
        client.routes.of("orders")
        body = client.routes.of("orders").encode()

        def slowly(asked: Frame) -> Frame:
            asked_again.set()
            assert go_on.wait(10)
            return response(asked, body=body)

        cluster.script[ROUTE.value] = slowly
        thread = threading.Thread(target=client.routes.of, args=("orders",))
        thread.start()
        assert asked_again.wait(10)
        assert len(client.routes.publish_queues("orders")) == 1
        go_on.set()
        thread.join(10)


def test_an_answer_that_is_no_route_is_an_error_of_its_own() -> None:
    script = {ROUTE: lambda asked: response(asked, ResponseCode.SYSTEM_ERROR, remark="name server not ready")}
    with (
        scripted_cluster(script) as cluster,
        client_of(cluster.address) as client,
        pytest.raises(AnswerError, match="name server not ready"),
    ):
        client.routes.of("orders")
