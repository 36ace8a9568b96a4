"""Files of batches stand in a directory once, wherever the writer is killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.errors import DataLost, StoreBusy

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from pyarrow import dataset, parquet  # noqa: E402 - only when there is one

from rmqclient.spark.pipelines.output.published import Published  # noqa: E402

TOP = Path(__file__).parents[3]
FILES, ROWS = 5, 30

KILLED = """
import os, pathlib, shutil, signal, sys
from pathlib import Path
from rmqclient.spark.pipelines.output import published
from tests.crash.store.test_published import publish

left = 0

def dying(function):
    def call(*arguments, **named):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return call

pathlib.Path.rename = dying(pathlib.Path.rename)
pathlib.Path.mkdir = dying(pathlib.Path.mkdir)
shutil.rmtree = dying(shutil.rmtree)
os.fsync, os.fdatasync = dying(os.fsync), dying(os.fdatasync)

status, steps = 1, 0
while status:
    if not (child := os.fork()):
        left = steps
        with published.Published(Path(sys.argv[1], str(steps))) as opened:
            publish(opened, 0)
            publish(opened, 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    steps += 1
"""


def publish(published: Published, number: int, *, files: int = FILES) -> None:
    """Publish a batch as Spark would: its offsets are in the checkpoint before."""
    offsets = published.checkpoint / "offsets"
    os.makedirs(offsets, exist_ok=True)  # noqa: PTH103 - Path.mkdir is where a child is killed
    (offsets / str(number)).write_text(f"v1\n{{}}\n{number}")
    published.publish(number, writing(number, files))


def writing(number: int, files: int) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        for index in range(files):
            path = directory / f"topic=t{index % 2}"
            os.makedirs(path, exist_ok=True)  # noqa: PTH103 - the same
            rows = range(number * ROWS + index, (number + 1) * ROWS, files)
            parquet.write_table(pa.table({"row": list(rows)}), path / f"part-{index}-{os.getpid()}.parquet")

    return write


def rows_in(target: Path) -> Counter[int]:
    if not any(target.rglob("*.parquet")):
        return Counter()
    return Counter(dataset.dataset(target, partitioning="hive").to_table()["row"].to_pylist())


@pytest.mark.crash
@pytest.mark.guarantee("G28")
def test_each_row_stands_once_wherever_the_writer_is_killed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=TOP, check=True, timeout=120)
    targets = sorted(path for path in tmp_path.iterdir() if path.suffix != ".work")
    assert len(targets) > 50
    for target in targets:
        assert set(rows_in(target).values()) <= {1}, f"at step {target.name}"
        with Published(target) as published:
            # Another plan of the same batches: other files, the same rows.
            publish(published, 0, files=2)
            publish(published, 1, files=3)
            publish(published, 2)
        assert rows_in(target) == Counter(range(3 * ROWS)), f"at step {target.name}"


def test_a_batch_that_comes_again_is_not_written_again(tmp_path: Path) -> None:
    with Published(tmp_path / "target") as published:
        publish(published, 0)
        publish(published, 0)
        assert [batch.number for batch in published.added] == [0]
    with Published(tmp_path / "target") as published:
        publish(published, 0)
        assert published.added == []
    assert rows_in(tmp_path / "target") == Counter(range(ROWS))


def test_a_checkpoint_that_was_exchanged_is_refused(tmp_path: Path) -> None:
    with Published(tmp_path / "target") as published:
        publish(published, 0)
        publish(published, 1)
        (published.checkpoint / "offsets" / "1").write_text("v1\n{}\nother")
        with pytest.raises(DataLost, match="has other messages"):
            published.publish(1, writing(1, 1))
        shutil.rmtree(published.work / "batches")
        (published.work / "batches").mkdir()
        publish(published, 5)
        (published.work / "batches" / "5.json").rename(published.work / "batches" / "9.json")
        with pytest.raises(DataLost, match="is at batch 5"):
            publish(published, 5)


def test_a_target_without_its_work_directory_is_refused_and_the_other_way_round(tmp_path: Path) -> None:
    target, work = tmp_path / "target", tmp_path / "target.work"
    with Published(target) as published:
        publish(published, 0)
    work.rename(tmp_path / "elsewhere")
    with pytest.raises(DataLost, match="which records their messages, is gone"), Published(target):
        pass
    shutil.rmtree(work)
    (tmp_path / "elsewhere").rename(work)
    shutil.rmtree(target)
    with pytest.raises(DataLost, match="is not the directory that"), Published(target):
        pass


@pytest.mark.parametrize("moved", ["target", "target.work"])
def test_a_directory_that_is_moved_while_it_is_written_to_gets_the_batch_when_it_is_back(
    tmp_path: Path, moved: str
) -> None:
    with Published(tmp_path / "target") as published:
        publish(published, 0)
        (tmp_path / moved).rename(tmp_path / "elsewhere")
        with pytest.raises(DataLost, match="was moved away or replaced"):
            publish(published, 1)
    shutil.rmtree(tmp_path / moved, ignore_errors=True)
    (tmp_path / "elsewhere").rename(tmp_path / moved)
    with Published(tmp_path / "target") as published:
        publish(published, 1)
    assert rows_in(tmp_path / "target") == Counter(range(2 * ROWS))


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with Published(tmp_path / "target"), pytest.raises(StoreBusy, match="another process writes"):
        Published(tmp_path / "target").__enter__()
