"""The page, the board and the alert rules name metrics that there are, and say of each what the code says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rmqclient.metrics.families import METRICS, PER_QUEUE, Kind

OPERATE = Path(__file__).parents[2] / "docs" / "operate"
SUFFIXES = ("", "_bucket", "_sum", "_count")


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:rmq|rocketmq)_[a-z0-9_]+", text))


def shown_names() -> set[str]:
    return {
        metric.name + suffix
        for metric in METRICS
        for suffix in (SUFFIXES[1:] if metric.kind is Kind.HISTOGRAM else SUFFIXES[:1])
    }


def table() -> str:
    """Return the table of the page."""
    rows = ["| name | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.meaning} |")
    return "\n".join(rows) + "\n"


def test_the_page_has_every_metric_with_its_type_its_labels_and_its_meaning() -> None:
    page = (OPERATE / "metrics.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- metrics -->\n")[2]
    assert shown == table(), f"write this behind <!-- metrics -->:\n{table()}"


@pytest.mark.parametrize("name", ["board.json", "alerts.yml"])
def test_the_board_and_the_alerts_use_metrics_that_are_always_there(name: str) -> None:
    used = names_in((OPERATE / name).read_text(encoding="utf-8"))
    assert used
    assert used - shown_names() == set()
    assert used.isdisjoint(PER_QUEUE)


def test_the_labels_that_the_board_and_the_alerts_choose_by_are_those_of_their_metric() -> None:
    labels = {metric.name: {*metric.labels, "node_id", "le"} for metric in METRICS}
    text = (OPERATE / "board.json").read_text(encoding="utf-8") + (OPERATE / "alerts.yml").read_text(encoding="utf-8")
    for name, chosen in re.findall(r"\b((?:rmq|rocketmq)_[a-z0-9_]+)\{([^}]*)\}", text.replace('\\"', '"')):
        known = labels.get(name) or labels[re.sub(r"_(bucket|sum|count)$", "", name)]
        assert set(re.findall(r"(\w+)=", chosen)) <= known, name


def test_every_panel_of_the_board_asks_something_and_has_a_number_of_its_own() -> None:
    panels = json.loads((OPERATE / "board.json").read_text(encoding="utf-8"))["panels"]
    assert all(target["expr"] for panel in panels for target in panel["targets"])
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_each_alert_says_how_grave_it_is_and_what_to_do() -> None:
    rules = (OPERATE / "alerts.yml").read_text(encoding="utf-8").split("- alert: ")[1:]
    for rule in rules:
        for part in ("expr: ", "for: ", "severity: ", "summary: ", "description: "):
            assert part in rule, rule
    assert len({rule.split("\n")[0] for rule in rules}) == len(rules)


PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool, of Debian's package prometheus, is not installed")
def test_prometheus_itself_reads_the_alert_rules() -> None:
    checked = subprocess.run(
        [str(PROMTOOL), "check", "rules", str(OPERATE / "alerts.yml")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(PROMTOOL is None, reason="promtool, of Debian's package prometheus, is not installed")
@pytest.mark.parametrize("other", ["no worker", "a worker that starts"])
def test_a_store_without_a_ready_worker_is_told_beside_one_that_has_some(tmp_path: Path, other: str) -> None:
    # Given two stores and a cluster, of which one store has a worker that is ready
    series = {
        'rmq_store_open{node_id="shop"}': 1,
        'rmq_store_open{node_id="bank"}': 1,
        'rmq_worker_up{node_id="shop",worker="worker-1"}': 1,
        'rmq_worker_up{node_id="shop",worker="worker-2"}': 0,
        'rmq_worker_up{node_id="cluster",worker="worker-1"}': 0,
    }
    if other == "a worker that starts":
        series['rmq_worker_up{node_id="bank",worker="worker-1"}'] = 0

    # Then the alert names the others, and only these
    description = (
        "Look at the log of the supervisor; `rmq worker ls` shows the states. Leave this rule out for a store whose "
        "handlers run in processes of their own."
    )
    alerts = [
        {
            "exp_labels": {"node_id": name, "severity": "critical"},
            "exp_annotations": {"summary": f"{name}: no worker is ready", "description": description},
        }
        for name in ("bank", "cluster")
    ]
    asked = {"eval_time": "5m", "alertname": "RmqNoWorkerReady", "exp_alerts": alerts}
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": f"{value}x10"} for name, value in series.items()],
        "alert_rule_test": [asked],
    }
    written = tmp_path / "two-stores.yml"
    written.write_text(json.dumps({"rule_files": [str(OPERATE / "alerts.yml")], "tests": [test]}), encoding="utf-8")
    tested = subprocess.run([str(PROMTOOL), "test", "rules", str(written)], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.skipif(PROMTOOL is None, reason="promtool, of Debian's package prometheus, is not installed")
def test_prometheus_itself_reads_what_the_board_asks() -> None:
    panels = json.loads((OPERATE / "board.json").read_text(encoding="utf-8"))["panels"]
    rules = [
        {"record": f"asked:{panel['id']}:{number}", "expr": target["expr"].replace("$__rate_interval", "5m")}
        for panel in panels
        for number, target in enumerate(panel["targets"])
    ]
    written = json.dumps({"groups": [{"name": "board", "rules": rules}]})
    checked = subprocess.run(
        [str(PROMTOOL), "check", "rules", "/dev/stdin"], input=written, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
