"""A streaming query whose driver is killed twice, and the judge of its Parquet; ``make torture`` does it 50 times."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.torture.wholes import spark_restarts
from tests.torture.wholes.spark_restarts import sink_files

SEED = int(os.environ.get("RMQ_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
KILLS = 2


@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.guarantee("G29")
def test_the_parquet_of_a_killed_query_holds_each_message_exactly_once(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    result = spark_restarts.run(SEED, KILLS, tmp_path)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.problems == [], str(result)
    assert result.figures["restarts"] == KILLS
    assert result.figures["rows"] == result.figures["messages"] != 0


def test_the_files_of_a_sink_are_those_that_its_log_names(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name, files in {"8": "a", "9.compact": "abc", "10": "", "11": "de"}.items():
        lines = [f'{{"path":"file://{tmp_path}/{file}%20x","size":1,"action":"add"}}' for file in files]
        (log / name).write_text("\n".join(["v1", *lines]))
    (log / ".11.crc").write_bytes(b"")
    (tmp_path / "f x").write_bytes(b"left by a batch that was killed")
    assert sink_files(tmp_path) == {tmp_path / f"{file} x" for file in "abcde"}
