"""RocketMQ's own exporter against ``rmq serve``: it finds every figure that it wants of a broker.

The exporter is in no registry. Its jar is made from its sources, and put where this test looks::

    git clone https://github.com/apache/rocketmq-exporter && cd rocketmq-exporter
    mvn -DskipTests package
    cp target/rocketmq-exporter-*-exec.jar .../tests/interop/target/rocketmq-exporter.jar
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmqclient import Message, Producer, PullConsumer
from rmqclient.testing import Server, serve
from tests.interop.serve.members import eventually

JAR = Path(__file__).parents[1] / "target" / "rocketmq-exporter.jar"
SENT = 5
TASKS = ("TopicOffset", "ConsumerOffset", "Producer", "BrokerStatsTopic", "BrokerStats", "BrokerRuntimeStats")
PUT_TODAY = "rocketmq_brokeruntime_msg_put_total_today_now"
LONG_S = 120.0

pytestmark = pytest.mark.skipif(
    not JAR.is_file() or shutil.which("java") is None, reason=f"there is no Java, or no {JAR.name}: its page says how"
)


def test_the_exporter_shows_what_the_server_has(tmp_path: Path) -> None:
    with serve(tmp_path / "store") as server:
        with Producer(f"rocketmq://{server.address}") as producer:
            for number in range(SENT):
                producer.send(Message("orders", b"%d" % number))
        with PullConsumer(str(server.root), group="billing") as consumer:
            for queue in consumer.queues("orders"):
                consumer.commit(queue, 0)
        with exporter(server, tmp_path) as address:
            wanted = {
                "rocketmq_producer_offset",
                "rocketmq_broker_tps",
                "rocketmq_brokeruntime_msg_put_total_today_now",
            }
            eventually(lambda: wanted <= shown(address).keys(), "the figures", LONG_S)
            found = shown(address)
    assert found["rocketmq_producer_offset"]["orders"] == SENT
    assert set(found[PUT_TODAY].values()) == {SENT}


@contextmanager
def exporter(server: Server, directory: Path) -> Iterator[str]:
    """Run the exporter, which asks the server each second; yield the address of its page."""
    page, grpc = free_port(), free_port()
    every_second = [f"--task.collect{task}.cron=* * * * * ?" for task in TASKS]
    command = ["java", "-Xmx256m", "-jar", str(JAR), f"--server.port={page}", f"--grpc.server.port={grpc}"]
    command += [f"--rocketmq.config.namesrvAddr={server.address}", *every_second]
    with (
        (directory / "exporter.log").open("wb") as log,
        subprocess.Popen(command, cwd=directory, stdout=log, stderr=log) as process,
    ):
        try:
            yield f"http://127.0.0.1:{page}/metrics"
        finally:
            process.kill()


def is_told(figures: dict[str, dict[str, float]]) -> bool:
    offsets, puts = figures.get("rocketmq_producer_offset", {}), figures.get(PUT_TODAY, {})
    return offsets.get("orders") == SENT and set(puts.values()) == {SENT}


def shown(address: str) -> dict[str, dict[str, float]]:
    """Return the figures by their names and topics; none while the page is not there."""
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return {}
    return {
        family.name: {sample.labels.get("topic", ""): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
    }


def free_port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
