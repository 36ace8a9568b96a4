"""Heartbeats: who hears of a group, and when."""

from __future__ import annotations

import time

import pytest

from rmqclient.cluster.client import heartbeats as heartbeats_module
from rmqclient.cluster.client import routes as routes_module
from rmqclient.remoting.bodies import ConsumerData, Heartbeat, RouteBroker, RouteQueue, Subscription, TopicRoute
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response
from tests.cluster.client.conftest import client_of
from tests.support.cluster.scripted_cluster import scripted_cluster

BEAT = RequestCode.HEART_BEAT
LEAVE = RequestCode.UNREGISTER_CLIENT
SHOP = ConsumerData("shop", subscriptions=(Subscription("orders"),))


def test_a_group_is_told_to_every_known_broker_before_the_call_returns() -> None:
    with scripted_cluster(brokers=("a", "b"), version=479) as cluster, client_of(cluster.address) as client:
        client.routes.of("orders")
        client.heartbeats.add_producer("tills")
        client.heartbeats.add_consumer(SHOP)
        for name, address in cluster.brokers.items():
            last = Heartbeat.decode(cluster.asked(BEAT, name)[-1].body)
            assert last.client_id == client.client_id
            assert [producer.group for producer in last.producers] == ["tills"]
            assert last.consumers == (SHOP,)
            assert client.heartbeats.version(address) == 479
        assert client.heartbeats.version("elsewhere:1") == 0


def test_a_broker_whose_route_becomes_known_hears_of_the_groups_first() -> None:
    with scripted_cluster() as cluster, client_of(cluster.address) as client:
        client.heartbeats.add_consumer(SHOP)
        assert not cluster.asked(BEAT)
        client.routes.of("orders")
        assert len(cluster.asked(BEAT)) == 1
        client.routes.of("others")
        assert len(cluster.asked(BEAT)) == 1


def test_producers_are_told_to_masters_only_and_consumers_to_slaves_too() -> None:
    with scripted_cluster(brokers=("master", "slave")) as cluster, client_of(cluster.address) as client:
        addresses = {0: cluster.brokers["master"], 1: cluster.brokers["slave"]}
        route = TopicRoute((RouteBroker("b", "C", addresses),), (RouteQueue("b", 1, 1),))
        cluster.script[RequestCode.GET_ROUTEINFO_BY_TOPIC.value] = lambda asked: response(asked, body=route.encode())
        client.routes.of("orders")
        client.heartbeats.add_producer("tills")
        assert len(cluster.asked(BEAT, "slave")) == 0
        client.heartbeats.add_consumer(SHOP)
        assert len(cluster.asked(BEAT, "slave")) == 1
        assert len(cluster.asked(BEAT, "master")) == 2


def test_heartbeats_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats_module, "INTERVAL_S", 0.05)
    with scripted_cluster() as cluster, client_of(cluster.address) as client:
        client.routes.of("orders")
        client.heartbeats.add_producer("tills")
        cluster.wait_for(BEAT, 5)


def test_heartbeats_go_on_after_an_exception_that_nobody_expected(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeats_module, "INTERVAL_S", 0.05)
    failures = iter([RuntimeError("can't start new thread")])

    def refresh() -> None:
        for failure in failures:
            raise failure

    with scripted_cluster() as cluster, client_of(cluster.address) as client:
        monkeypatch.setattr(client.routes, "refresh", refresh)
        client.routes.of("orders")
        client.heartbeats.add_producer("tills")
        cluster.wait_for(BEAT, 4)
    assert "can't start new thread" in caplog.text


def test_leaving_a_group_and_closing_are_told() -> None:
    with scripted_cluster() as cluster:
        with client_of(cluster.address) as client:
            client.routes.of("orders")
            client.heartbeats.add_producer("tills")
            client.heartbeats.add_producer("desks")
            client.heartbeats.add_consumer(SHOP)
            client.heartbeats.remove_producer("tills")
            client.heartbeats.remove_producer("never joined")
            assert [request_fields(asked)["producerGroup"] for asked in cluster.asked(LEAVE)] == ["tills"]
            client.heartbeats.beat()
            assert len(Heartbeat.decode(cluster.asked(BEAT)[-1].body).producers) == 1
        left = [request_fields(asked) for asked in cluster.asked(LEAVE)[1:]]
        assert {fields.get("producerGroup") or fields["consumerGroup"] for fields in left} == {"desks", "shop"}
        assert {fields["clientID"] for fields in left} == {client.client_id}


def test_a_broker_hears_again_soon_after_its_connection_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats_module, "RETRY_S", 0.1)
    with scripted_cluster() as cluster, client_of(cluster.address) as client:
        client.routes.of("orders")
        client.heartbeats.add_consumer(SHOP)
        begun = time.monotonic()
        for count in (2, 3, 4):
            cluster.hang_up()
            cluster.wait_for(BEAT, count)
        assert time.monotonic() - begun < 10


def test_a_broker_that_refuses_a_heartbeat_is_tried_again_and_it_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeats_module, "RETRY_S", 0.05)

    def refused(asked: Frame) -> Frame:
        return response(asked, ResponseCode.SYSTEM_ERROR, remark="not today")

    with scripted_cluster({BEAT: refused}) as cluster, client_of(cluster.address) as client:
        client.routes.of("orders")
        client.heartbeats.add_producer("tills")
        cluster.wait_for(BEAT, 4)
        del cluster.script[BEAT.value]
        count = len(cluster.asked(BEAT))
        cluster.wait_for(BEAT, count + 1)
    assert caplog.text.count("not today") == 1


def test_a_lost_connection_to_who_is_no_broker_is_no_reason_for_a_heartbeat() -> None:
    with scripted_cluster() as cluster, client_of(cluster.address) as client:
        client.routes.of("orders")
        client.heartbeats.add_producer("tills")
        client.heartbeats.lost("127.0.0.1:9")
        deadline = time.monotonic() + 10
        while client.heartbeats._missed:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert len(cluster.asked(BEAT)) == 1


def test_routes_are_asked_for_again_with_the_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats_module, "INTERVAL_S", 0.05)
    monkeypatch.setattr(routes_module, "FRESH_S", 0.0)
    topics = {"orders": 1, "others": 1}
    with scripted_cluster(topics=topics) as cluster, client_of(cluster.address) as client:
        client.routes.of("orders")
        client.routes.of("others")
        client.heartbeats.add_producer("tills")
        cluster.wait_for(RequestCode.GET_ROUTEINFO_BY_TOPIC, 5)
        del topics["orders"]
        cluster.wait_for(BEAT, len(cluster.asked(BEAT)) + 3)  # one topic less is no reason to end
