"""One process at a time, by the locks of the brokers, and the schedules that need it."""

from __future__ import annotations

import datetime
import threading
from typing import Any

import pytest

from rmqclient import App, Producer
from rmqclient.backend import Backend
from rmqclient.cluster.backend import cluster_backend
from rmqclient.cluster.reading import alone
from rmqclient.errors import BrokerUnreachable, StoreBusy
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import response
from rmqclient.schedules.cron import UTC
from rmqclient.schedules.cron_sender import CronSender
from tests.cluster.reading.conftest import runtime
from tests.support.cluster.keeping_cluster import KeepingCluster

NOON = datetime.datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_two_clients_exclude_each_other_at_any_common_broker(kept: KeepingCluster, url: str) -> None:
    first, second = cluster_backend(url), cluster_backend(url)
    with first.alone("orders report", 1), pytest.raises(StoreBusy), second.alone("orders report", 0.3):
        pass
    with second.alone("orders report", 1):
        assert {broker for _, _, broker, _ in kept.cluster.state.locks} == {"broker-a", "broker-b"}
    assert kept.cluster.state.locks == {}
    kept.cluster.stop("broker-b")
    with first.alone("orders report", 5), pytest.raises(StoreBusy), second.alone("orders report", 0.3):
        pass
    first.close()
    second.close()


def test_one_broker_that_another_client_reaches_is_enough(kept: KeepingCluster, backend: Backend) -> None:
    held = ("rmq-cron", "orders report", "broker-b", 0)
    kept.cluster.state.locks[held] = "another client"
    with pytest.raises(StoreBusy), backend.alone("orders report", 0.3):
        pass
    assert kept.cluster.state.locks == {held: "another client"}, "what was locked elsewhere is free again"


def test_a_client_excludes_its_own_threads(backend: Backend) -> None:
    entered = []

    def enter() -> None:
        with pytest.raises(StoreBusy), backend.alone("orders report", 0.1):
            entered.append(1)

    with backend.alone("orders report", 1):
        other = threading.Thread(target=enter)
        other.start()
        other.join()
    assert entered == []


def test_a_lock_is_kept_at_the_other_brokers_when_one_has_lost_its_master(
    kept: KeepingCluster, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alone, "RENEW_EVERY_S", 0.01)
    with backend.alone("orders report", 1):
        queues: Any = backend.queues
        queues._client.brokers.learn({"broker-a": {1: "127.0.0.1:9"}})
        asked = len(kept.cluster.asked(RequestCode.LOCK_BATCH_MQ, "broker-b"))
        kept.cluster.wait_for(RequestCode.LOCK_BATCH_MQ, asked + 3, broker="broker-b")


def test_without_a_master_nobody_is_alone(kept: KeepingCluster, backend: Backend) -> None:
    kept.cluster.script[RequestCode.LOCK_BATCH_MQ] = lambda _: None  # no answer
    with pytest.raises(BrokerUnreachable, match="no master gives a lock"), backend.alone("orders report", 1):
        pass


def sender_of(backend: Backend, producer: Producer) -> CronSender:
    app = App()

    @app.schedule(every=60, topic="orders", name="report")
    def report() -> bytes:
        return b"report"

    return CronSender(backend, producer, app.crons[0], lambda: NOON)


def test_a_tick_has_one_message_whoever_sends_it(kept: KeepingCluster, url: str) -> None:
    for _ in range(3):
        backend = cluster_backend(url)
        with Producer(backend) as producer:
            sender_of(backend, producer).look()
        backend.close()
    assert kept.bodies("orders") == [b"report"]


def test_the_lock_is_kept_until_the_index_has_the_message(kept: KeepingCluster, backend: Backend) -> None:
    behind = {"looks": 0}

    def told(asked: Frame) -> Frame:
        behind["looks"] += 1 if kept.bodies("orders") else 0
        is_behind = bool(kept.bodies("orders")) and behind["looks"] < 4
        held = bool(kept.cluster.state.locks)
        assert held
        return runtime(dispatchBehindBytes=100 if is_behind else 0)(asked)

    kept.cluster.script[RequestCode.GET_BROKER_RUNTIME_INFO] = told
    with Producer(backend) as producer:
        sender_of(backend, producer).look()
    assert behind["looks"] >= 4


def test_a_broker_that_indexes_nothing_is_not_waited_for_for_ever(
    kept: KeepingCluster, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqclient.cluster.reading.finding._SETTLED_WITHIN_S", 0.1)
    kept.cluster.script[RequestCode.GET_BROKER_RUNTIME_INFO] = runtime(dispatchBehindBytes=100)
    with pytest.raises(StoreBusy, match="the index of broker 'broker-a' is behind its log"):
        backend.messages.settle()


def test_what_was_removed_is_told_by_the_brokers(kept: KeepingCluster, backend: Backend) -> None:
    assert backend.messages.begin_ms() is None
    kept.cluster.script[RequestCode.GET_BROKER_RUNTIME_INFO] = runtime(
        commitLogMinOffset=1024, earliestMessageTimeStamp=1_700_000_000_000
    )
    assert backend.messages.begin_ms() == 1_700_000_000_000


def test_no_answer_is_an_error_of_the_caller(kept: KeepingCluster, backend: Backend) -> None:
    kept.cluster.script[RequestCode.QUERY_MESSAGE] = lambda asked: response(asked, 1, remark="disk")
    with pytest.raises(Exception, match="1 SYSTEM_ERROR: disk"):
        backend.messages.by_key("orders", "7", 0, 2**63 - 1, 1)
