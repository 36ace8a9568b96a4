"""RocketMQ's own exporter and dashboard against ``rmq serve``: they find all that they ask of a broker.

Neither is in a registry. Their jars are made from their sources, and put where these tests look::

    git clone https://github.com/apache/rocketmq-exporter && cd rocketmq-exporter
    mvn -DskipTests package
    cp target/rocketmq-exporter-*-exec.jar .../tests/interop/target/rocketmq-exporter.jar

    git clone https://github.com/apache/rocketmq-dashboard && cd rocketmq-dashboard
    mkdir -p frontend-new/build    # its pages in the browser are not tried: they ask for what these tests ask for
    mvn -DskipTests -Dskip.installnodenpm -Dskip.installyarn -Dskip.yarn package
    cp target/rocketmq-dashboard-*.jar .../tests/interop/target/rocketmq-dashboard.jar
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmqclient import Message, Producer, PullConsumer
from rmqclient.testing import Server, serve
from tests.interop.serve.members import eventually

JARS = Path(__file__).parents[1] / "target"
SENT = 5
TASKS = ("TopicOffset", "ConsumerOffset", "Producer", "BrokerStatsTopic", "BrokerStats", "BrokerRuntimeStats")
PUT_TODAY = "rocketmq_brokeruntime_msg_put_total_today_now"
LONG_S = 120.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with five orders, of which the group ``billing`` has taken none."""
    with serve(tmp_path / "store") as server:
        with Producer(f"rocketmq://{server.address}") as producer:
            for number in range(SENT):
                producer.send(Message("orders", b"%d" % number, keys=[f"order-{number}"]))
        with PullConsumer(str(server.root), group="billing") as consumer:
            for queue in consumer.queues("orders"):
                consumer.commit(queue, 0)
        yield server


def test_the_exporter_shows_what_the_server_has(server: Server, tmp_path: Path) -> None:
    every_second = [f"--task.collect{task}.cron=* * * * * ?" for task in TASKS]
    settings = [f"--rocketmq.config.namesrvAddr={server.address}", f"--grpc.server.port={free_port()}", *every_second]
    with started("rocketmq-exporter.jar", tmp_path, *settings) as address:
        eventually(lambda: is_told(figures(address)), "what was sent", LONG_S)
        assert "rocketmq_broker_tps" in figures(address)


def test_the_dashboard_gets_its_pages(server: Server, tmp_path: Path) -> None:
    settings = {"namesrvAddrs[0]": server.address, "isVIPChannel": "false", "dataPath": str(tmp_path / "data")}
    told = [f"--rocketmq.config.{name}={value}" for name, value in settings.items()]
    with started("rocketmq-dashboard.jar", tmp_path, *told) as address:
        eventually(lambda: asked(address, "cluster/list.query") is not None, "the dashboard", LONG_S)

        def page(path: str, **parameters: object) -> Any:
            answer = asked(address, path, **parameters)
            assert answer is not None
            assert answer["status"] == 0, answer["errMsg"]
            return answer["data"]

        (broker,) = page("cluster/list.query")["brokerServer"].values()
        assert broker["0"]["msgPutTotalTodayNow"] == str(SENT)
        assert "orders" in page("topic/list.query")["topicList"]
        assert len(page("topic/route.query", topic="orders")["queueDatas"]) == 1
        stats = page("topic/stats.query", topic="orders")["offsetTable"].values()
        assert sum(each["maxOffset"] - each["minOffset"] for each in stats) == SENT
        assert page("topic/queryConsumerByTopic.query", topic="orders")["billing"]["diffTotal"] == SENT
        assert [each["group"] for each in page("consumer/groupList.query")] == ["billing"]
        assert page("cluster/brokerConfig.query", brokerAddr=server.address)["brokerName"] == "broker-a"
        (found,) = page("message/queryMessageByTopicAndKey.query", topic="orders", key="order-1")
        assert found["properties"]["KEYS"] == "order-1"
        shown = page("message/viewMessage.query", topic="orders", msgId=found["msgId"])["messageView"]
        assert shown["queueOffset"] == found["queueOffset"]


@contextmanager
def started(jar: str, directory: Path, *settings: str) -> Iterator[str]:
    """Run a service; yield the address of its pages, which are there later."""
    if not (JARS / jar).is_file() or shutil.which("java") is None:
        pytest.skip(f"there is no Java, or no {jar}: the head of this file says how it is made")
    port = free_port()
    command = ["java", "-Xmx384m", f"-Duser.home={directory}", "-jar", str(JARS / jar), f"--server.port={port}"]
    with (
        (directory / "service.log").open("wb") as log,
        subprocess.Popen([*command, *settings], cwd=directory, stdout=log, stderr=log) as process,
    ):
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def asked(address: str, path: str, **parameters: object) -> Any:
    """Return what a page of the dashboard answers; None while it is not there."""
    text = content(f"{address}/{path}?{urllib.parse.urlencode(parameters)}")
    return json.loads(text) if text else None


def figures(address: str) -> dict[str, dict[str, float]]:
    """Return what the exporter shows, by names and topics; nothing while it is not there."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(content(f"{address}/metrics")):
        for sample in family.samples:  # it writes a family several times
            found.setdefault(sample.name, {})[sample.labels.get("topic", "")] = sample.value
    return found


def is_told(shown: dict[str, dict[str, float]]) -> bool:
    """Tell whether the exporter has asked for everything that its test looks at."""
    offsets, puts = shown.get("rocketmq_producer_offset", {}), shown.get(PUT_TODAY, {})
    return offsets.get("orders") == SENT and set(puts.values()) == {SENT}


def content(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, ConnectionError):
        return ""


def free_port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
