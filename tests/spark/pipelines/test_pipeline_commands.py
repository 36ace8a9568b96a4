"""``rmq pipeline``: what it prints, and what it says when something is wrong."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from rmqclient.workers import pipeline_job
from rmqclient.workers.cli import rmq
from rmqclient.workers.commands.pipeline import size
from tests.spark.pipeline_store import MESSAGES, make_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINES = ("archive", "aggregate", "dead-letters", "compact", "backfill", "audit")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("commands") / "store")


def run(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(rmq, ["pipeline", *arguments], env={"RMQ_STORE": str(root)})


def test_every_pipeline_has_help_without_spark() -> None:
    for name in PIPELINES:
        shown = CliRunner().invoke(rmq, ["pipeline", name, "--help"])
        assert shown.exit_code == 0
        assert "Spark takes 5 to 10 seconds to start." in shown.stdout
        assert "--store" in shown.stdout


def test_the_commands_do_what_the_functions_do(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    target = tmp_path / "archive"
    archived = run(root, "archive", "orders", "payments", "--to", str(target), "-o", "json")
    assert json.loads(archived.stdout)[0]["messages"] == MESSAGES
    assert shlex.split(archived.stderr.splitlines()[0]) == [
        *("spark-submit", "--master", "local[*]", "--conf", spark_python(archived)),
        *(pipeline_job.__file__, "archive", "orders", "payments", "--to", str(target), "-o", "json"),
        *("--store", str(root)),
    ]
    windows = json.loads(run(root, "aggregate", "orders", "--window", "1 day", "-o", "json").stdout)
    assert sum(each["messages"] for each in windows) == 160
    assert windows[0]["start"][10:11] == " "
    failing = run(root, "dead-letters", "shipping", "--where", "error = 'TimeoutError'", "-o", "json")
    assert {each["error"] for each in json.loads(failing.stdout)} == {"TimeoutError"}
    compacted = json.loads(run(root, "compact", "orders", "--to", str(tmp_path / "latest"), "-o", "json").stdout)
    assert compacted[0]["keys"] == 20
    audited = run(root, "audit", "orders", "-o", "json")
    assert audited.exit_code == 0
    assert set(json.loads(audited.stdout)) == {"hours", "queues", "groups"}


def spark_python(result: Result) -> str:
    (setting,) = [each for each in shlex.split(result.stderr) if each.startswith("spark.pyspark.python=")]
    return setting


def test_what_is_wrong_is_said_in_one_line(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    for arguments, code, told in (
        (("archive", "nope", "--to", str(tmp_path / "x")), 1, "nothing was ever sent to nope"),
        (("aggregate", "orders", "--option", "nonsense=1"), 1, "nonsense"),
        (("dead-letters", "--where", "no_column = 1"), 1, "no_column"),
        (("backfill", "orders", "--to", "orders", "--name", "n"), 1, "topic orders is one of the topics to read"),
        (("backfill", "orders", "--to", "x", "--name", "n", "--transform", "no.module:f"), 2, "cannot be imported"),
        (("dead-letters", "--replay"), 2, "name it"),
        (("aggregate", "orders", "--every", "1s"), 2, "say where its windows go with --to"),
        (("archive", "orders", "--to", "x", "--file-size", "3 apples"), 2, "is not a size"),
    ):
        result = run(root, *arguments)
        assert result.exit_code == code, result.output
        assert told in result.stderr.splitlines()[-1], result.stderr
        assert "Traceback" not in result.output


def test_sizes_are_bytes_or_have_a_unit() -> None:
    assert [size(text) for text in ("1000", "64k", "128m", "2G")] == [1000, 64 << 10, 128 << 20, 2 << 30]
