"""The names of RocketMQ 5's exporter: each is shown with its type, or the page says that it is not, and why."""

from __future__ import annotations

from pathlib import Path

from rmqclient.metrics.families import BARE_NAMES, METRICS, Kind

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "metrics.md"

ROCKETMQ = {
    Kind.COUNTER: """messages_in_total messages_out_total throughput_in_total throughput_out_total
        send_to_dlq_messages_total commit_messages_total rollback_messages_total timer_enqueue_total
        timer_dequeue_total""",
    Kind.GAUGE: """broker_permission processor_watermark topic_number consumer_group_number producer_connections
        consumer_connections consumer_lag_messages consumer_lag_latency_milliseconds consumer_inflight_messages
        consumer_queueing_latency_milliseconds consumer_ready_messages half_messages storage_size_bytes
        storage_flush_behind_bytes storage_dispatch_behind_bytes storage_message_reserve_time_milliseconds
        timer_enqueue_lag timer_enqueue_latency_milliseconds timer_dequeue_lag timer_dequeue_latency_milliseconds
        timing_messages""",
    Kind.HISTOGRAM: """message_size rpc_latency_milliseconds finish_message_latency_milliseconds
        topic_create_execution_time_milliseconds consumer_group_create_execution_time_milliseconds
        delay_message_latency_seconds""",
}
"""As they are scraped from a broker of 5.3.3, without the prefix ``rocketmq_`` and without pop, tiers and RocksDB.

[BrokerMetricsConstant, DefaultStoreMetricsConstant, RemotingMetricsConstant]
"""

THEIRS = {f"rocketmq_{name}": kind for kind, names in ROCKETMQ.items() for name in names.split()}
OURS = {metric.name: metric.kind for metric in METRICS if metric.name.startswith("rocketmq_")}


def test_a_name_of_rocketmq_has_its_type() -> None:
    assert {name: THEIRS.get(name) for name in OURS} == OURS


def test_a_name_without_its_unit_is_that_of_an_older_broker() -> None:
    assert all(THEIRS.keys() & {name} for name in BARE_NAMES)
    assert all(name.startswith(bare) for name, bare in BARE_NAMES.items())


def test_the_page_names_what_is_not_shown() -> None:
    page = PAGE.read_text(encoding="utf-8")
    section = page.partition("## Metrics of RocketMQ that this library does not have")[2].partition("\n## ")[0]
    told = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    assert {name for name in THEIRS if f"`{name}`" in told} == THEIRS.keys() - OURS.keys()
