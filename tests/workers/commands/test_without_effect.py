"""Options that would have no effect beside others are refused, with their names, and nothing is done."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqclient import Producer, StoreConfig
from rmqclient.workers.cli import rmq


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one message, and a file with one line beside it."""
    root = tmp_path_factory.mktemp("effect") / "store"
    with Producer(root, config=StoreConfig.small()) as producer:
        producer.send("orders", b"7", key="7")
    (root.parent / "lines").write_text("8\n", encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("send orders x --file lines", "--file"),
        ("send orders --lines lines --jsonl lines", "--lines"),
        ("send orders --lines lines --count 3", "--count"),
        ("send orders --jsonl lines --count 3", "--count"),
        ("send orders x --delay 5s --delay-level 3", "--delay-level"),
        ("send orders x --sharding-key a --sharding-key-from b", "--sharding-key-from"),
        ("send orders x --property a 1 --property a 2", "--property"),
        ("tail orders --queue 99 --no-follow", "--queue"),
        ("tail orders --format %b -o json --no-follow", "--format"),
        ("tail orders --format %b --query body --no-follow", "--format"),
        ("tail orders -o json", "-o jsonl"),
        ("tail orders -o yaml", "-o jsonl"),
        ("tail orders -o csv", "-o jsonl"),
        ("topic update orders", "--queues"),
        ("group clone billing billing", "billing"),
        ("check --warn 10 --crit 5", "--crit 5"),
        ("check --age-warn 10m --age-crit 5m", "--age-crit 300"),
        ("check --dlq-crit 0", "--dlq-warn 1"),
        ("check --disk-warn 0.9", "--disk-crit 0.85"),
        ("check --disk-warn 75", "0.75"),
        ("check --disk-crit nan", "nan"),
        ("check -o nagios --query [0]", "-o nagios"),
        ("check --interval 1s", "--interval"),
        ("topic ls --interval 1s", "--interval"),
        ("check live --group billing", "--group"),
        ("check live --warn 1 --min-ready 1", "--warn and --min-ready"),
        ("check ready --warn 1", "--warn"),
        ("check ready --dlq-warn 1", "--dlq-warn"),
        ("doctor --with-bodies", "--with-bodies"),
        ("dlq ls --error TimeoutError", "--error"),
        ("dlq ls --limit 3", "--limit"),
        ("group seek billing --to-file lines --queue 1", "--queue"),
        ("message find orders 7 --since 2h --until 3h", "--since and --until"),
        ("tail orders --from 1h --until 2h --no-follow", "--from and --until"),
        ("tail orders --from 99999999 --no-follow", "99999999"),
        ("tail orders --from 100 --no-follow", "-100"),
        ("message find orders 7 --since 90", "90s"),
        ("send orders x --rate 5", "--rate"),
        ("top --once -n 3", "--frames"),
        ("top --since 1h --once --interval 1s", "--once and --interval"),
        ("dashboard . ", "--store"),
        ("dashboard --uds socket --listen 127.0.0.1:0", "--listen"),
        ("dashboard --author-header X-User", "--author-header"),
        ("dev shop:app --yes", "--yes"),
        ("pipeline aggregate orders --lateness '1 minute'", "--lateness"),
        ("pipeline aggregate orders --since 1h --until 2h", "--since and --until"),
        ("pipeline dead-letters billing --replay --chart a.png", "--chart"),
        ("pipeline dead-letters billing --rate 3", "--rate"),
        ("metrics --listen 127.0.0.1:0 --output lines", "--output"),
        ("metrics --label team=a --label team=b", "team"),
        ("metrics --label consumer_group=a", "consumer_group"),
        ("metrics --label le=1", "le"),
        ("metrics --label 'a b=1'", "a b"),
        ("metrics --label __name__=a", "__name__"),
    ],
)
def test_an_option_without_effect_is_refused(
    root: Path, line: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root.parent)
    result = CliRunner().invoke(rmq, [*shlex.split(line), "--store", str(root)])
    assert result.exit_code == 2, result.output
    assert named in result.stderr


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("--make-key ada --sync", "--sync"),
        ("store --make-key ada", "ROOT"),
        ("store --on-lost degrade", "--on-lost"),
        ("store --followers 2 --replica-timeout-ms 5", "--followers and --replica-timeout-ms"),
        ("store --memory-percent 10", "--memory-percent"),
    ],
)
def test_an_option_of_a_server_without_effect_is_refused(
    tmp_path: Path, line: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(rmq, ["serve", *shlex.split(line)])
    assert result.exit_code == 2, result.output
    assert named in result.stderr


def test_variables_and_settings_may_name_what_one_form_of_a_command_does_not_use(root: Path) -> None:
    variables = {"RMQ_CHECK_GROUP": "billing", "RMQ_CHECK_WARN": "5", "RMQ_CHECK_INTERVAL": "1s"}
    assert CliRunner().invoke(rmq, ["check", "live", "--store", str(root)], env=variables).exit_code == 1
