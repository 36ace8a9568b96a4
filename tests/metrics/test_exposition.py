"""Prometheus can read every line, from the command, over HTTP, and through the registry of an application."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.metrics import (
    CONTENT_TYPE,
    METRICS,
    Listener,
    Sampler,
    Shown,
    Source,
    StoreCollector,
    by_topic,
    exposition,
)
from rmqclient.metrics.families import BARE_NAMES, NODE_LABELS, OF_CLUSTERS, PER_QUEUE, Family, Kind, Metric, Point
from rmqclient.metrics.readings import USUAL
from tests.metrics.conftest import SENT, is_finished, wait_for
from tests.workers.commands.test_cli import run

parser = pytest.importorskip("prometheus_client.parser")


def parsed(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every series, without the labels of the node."""
    found = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, frozenset(each for each in sample.labels.items() if each[0] not in NODE_LABELS)
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def shown(root: Path, what: Shown = USUAL) -> str:
    """Return what Prometheus reads of a store."""
    with Source(root, what) as source:
        return exposition(source.read())


def value(series: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float:
    return series[name, frozenset(labels.items())]


def test_every_line_is_read_and_every_metric_is_there(handled: Sampler, root: Path) -> None:
    text = shown(root, Shown(per_queue=True))
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    for metric in METRICS:
        if metric.name in OF_CLUSTERS:
            continue
        name = metric.name.removesuffix("_total") if metric.kind is Kind.COUNTER else metric.name
        assert families[name].type == metric.kind.value
        assert families[name].documentation == metric.meaning
        assert metric.name.startswith("rmq_worker_") != bool(families[name].samples), name


def test_the_numbers_are_those_of_the_store(handled: Sampler, root: Path) -> None:
    series = parsed(shown(root))
    billing = {"group": "billing", "topic": "orders"}
    assert value(series, "rmq_handled_total", **billing) == 65
    assert value(series, "rmq_failed_total", **billing) == 10
    assert value(series, "rmq_retried_total", **billing) == 0
    assert value(series, "rmq_dead_lettered_total", **billing) == 10
    assert value(series, "rmq_skipped_total", **billing) == 25
    assert value(series, "rocketmq_messages_in_total", topic="orders", message_type="normal", is_system="false") == SENT
    assert (
        value(series, "rocketmq_messages_out_total", topic="orders", consumer_group="audit", is_system="false") == SENT
    )
    lag = {"consumer_group": "billing", "topic": "orders", "is_retry": "false", "is_system": "false"}
    assert value(series, "rocketmq_consumer_lag_messages", **lag) == 0
    assert value(series, "rmq_store_open") == 1
    assert value(series, "rmq_group_state", **billing, state="idle") == 1
    assert value(series, "rmq_group_state", **billing, state="running") == 0
    assert value(series, "rmq_waiting_retries", group="billing") == 0
    assert not any(name in PER_QUEUE for name, _ in series)


def test_the_results_of_durable_steps_are_no_traffic_of_an_application(root: Path) -> None:
    app = App(root)

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        message.steps("charge", lambda: 1)

    with Producer(root) as producer, Sampler(root) as sampler:
        producer.create_topic("orders", 1)
        producer.send(Message("orders", b"1"))
        consumer = PushConsumer(root, app.handlers)
        consumer.start()
        wait_for(lambda: "%STEPS%billing" in by_topic(sampler.sample()) and is_finished(sampler.sample()), "it is done")
        consumer.close()
    series = parsed(shown(root))
    labels = {"topic": "%STEPS%billing", "message_type": "normal", "is_system": "true"}
    assert value(series, "rocketmq_messages_in_total", **labels) == 1
    assert value(series, "rocketmq_topic_number") == 1


def test_no_counter_falls_and_a_histogram_grows_from_class_to_class(handled: Sampler, root: Path) -> None:
    first, second = parsed(shown(root)), parsed(shown(root))
    assert all(second[key] >= count for key, count in first.items() if key[0].endswith(("_total", "_bucket", "_count")))
    classes = [
        (float(dict(labels)["le"]), count)
        for (name, labels), count in second.items()
        if name == "rmq_queue_wait_seconds_bucket" and ("group", "audit") in labels
    ]
    counts = [count for _, count in sorted(classes)]
    assert counts == sorted(counts)


def test_labels_are_escaped_and_given_ones_take_the_place_of_ours(root: Path, handled: Sampler) -> None:
    metric = Metric("a_total", Kind.COUNTER, "One \\ two\nthree.", ("x",))
    text = exposition([Family(metric, [Point("", {"x": 'say "no"\\\n'}, 1)])])
    (family,) = parser.text_string_to_metric_families(text)
    assert family.samples[0].labels == {"x": 'say "no"\\\n'}
    labelled = shown(root, Shown(labels=(("node_id", "a"), ("team", "b"))))
    assert 'rmq_store_open{cluster="rmq",node_type="broker",node_id="a",team="b"} 1' in labelled


def test_the_names_of_older_brokers_are_shown_on_demand(root: Path, handled: Sampler) -> None:
    text = shown(root, Shown(bare_names=True))
    for name, bare in BARE_NAMES.items():
        assert f"# TYPE {name} gauge\n" in text
        assert f"# TYPE {bare} gauge\n" in text


def test_a_registry_gets_the_same_series(root: Path, handled: Sampler) -> None:
    registry = pytest.importorskip("prometheus_client").CollectorRegistry()
    collector = StoreCollector(root)
    registry.register(collector)
    text = pytest.importorskip("prometheus_client").generate_latest(registry).decode()
    collector.close()
    assert {key for key in parsed(text) if not key[0].endswith("_created")} == set(parsed(shown(root)))


def test_a_registry_of_a_store_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert list(StoreCollector(tmp_path).collect()) == []


def test_it_is_served_over_http(root: Path, handled: Sampler) -> None:
    with Listener(Source(root), ("127.0.0.1", 0)) as listener:
        status, content_type, body = get(listener.address, "/metrics")
        assert (status, content_type) == (200, CONTENT_TYPE)
        assert parsed(body)["rmq_store_open", frozenset()] == 1
        assert get(listener.address, "/")[0] == 404


def test_a_store_that_cannot_be_read_is_answered_with_the_reason(tmp_path: Path) -> None:
    with Listener(Source(tmp_path), ("127.0.0.1", 0)) as listener:
        status, _, body = get(listener.address, "/metrics")
    assert status == 503
    assert "holds no store" in body


def get(address: tuple[str, int], path: str) -> tuple[int, str | None, str]:
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()
    finally:
        connection.close()


def test_the_command_prints_them_and_writes_a_file_as_a_whole(root: Path, handled: Sampler, tmp_path: Path) -> None:
    printed = run("metrics", "--store", str(root), "--label", "team=shop")
    assert printed.exit_code == 0, printed.output
    assert ("rmq_store_open", frozenset({("team", "shop")})) in parsed(printed.stdout)
    written = run("metrics", "--store", str(root), "--output", str(tmp_path / "rmq.prom"))
    assert (written.exit_code, written.stdout) == (0, "")
    assert "rmq_store_open" in (tmp_path / "rmq.prom").read_text()
    assert [path.name for path in tmp_path.iterdir() if "prom" in path.name] == ["rmq.prom"]


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    assert "holds no store" in run("metrics", "--store", str(tmp_path)).stderr
    assert "HOST:PORT" in run("metrics", "--store", str(tmp_path), "--listen", "5558").stderr


@pytest.mark.parametrize("command", ["metrics", "run"])
def test_the_commands_serve_them(root: Path, handled: Sampler, tmp_path: Path, command: str) -> None:
    (tmp_path / "shop.py").write_text(
        f"from rmqclient import App\napp = App({str(root)!r})\n\n"
        "@app.handler('orders', group='served')\ndef take(message):\n    pass\n"
    )
    arguments = {
        "metrics": ["metrics", "--store", str(root), "--listen", "127.0.0.1:0"],
        "run": ["run", "shop:app", "--processes", "1", "--metrics", "127.0.0.1:0"],
    }[command]
    command_line = [sys.executable, "-m", "rmqclient.workers", *arguments]
    with subprocess.Popen(command_line, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stderr is not None
        at = next(found for line in process.stderr if (found := re.search(r"http://([\d.]+):(\d+)/metrics", line)))
        status, _, body = get((at[1], int(at[2])), "/metrics")
        process.terminate()
        process.stderr.read()
    assert status == 200
    assert "rmq_handled_total" in body
    assert process.returncode == 0
