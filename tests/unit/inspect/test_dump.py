"""A dump has every record of the log, in its order, and a sentence for what is no record."""

from __future__ import annotations

import io
import os
import signal
import subprocess
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from rmqclient.store import open_store
from rmqclient.store.errors import StoreUnusable
from rmqclient.store.inspect.dump import dump, dump_file
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.support.written import (
    COPIES,
    ORDERS,
    PAYMENTS,
    RMQ_STORE,
    SMALL,
    TOP,
    appending,
    copy_as_of_a_broker,
    copy_of_files,
    copy_with_runtime_file,
    fill,
    message,
    overwrite,
    run,
    run_here,
    state_of_files,
)

FILE_BYTES = SMALL.commit_log_file_bytes
PLACE = ("topic", "queue_id", "queue_offset", "commit_log_offset", "store_timestamp")


@pytest.fixture(params=COPIES)
def copy(written: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return COPIES[request.param](written, tmp_path / "copy")


def dumped(root: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the lines and the sentences."""
    lines = io.BytesIO()
    damages = list(dump(root, lines))
    return [orjson.loads(line) for line in lines.getvalue().splitlines()], damages


def offsets(lines: list[dict[str, Any]]) -> list[int]:
    return [line["commit_log_offset"] for line in lines]


def stored_offsets(root: Path) -> list[int]:
    return [offset for offset, _ in reference.read_commit_log(root)]


def log_path(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * FILE_BYTES:020d}"


# --- whole stores ---------------------------------------------------------------------------------


def test_every_message_is_there_as_it_was_sent(copy: Path) -> None:
    lines, damages = dumped(copy)
    assert damages == []
    assert len(lines) == 180
    for number, line in enumerate(lines):
        sent = message(number)
        properties = dict(line["properties"])
        assert len(properties.pop("UNIQ_KEY")) == 32
        assert properties.pop("TAGS", None) == sent.tags == line["tags"]
        assert properties.pop("KEYS", "").split() == list(sent.keys) == line["keys"]
        assert properties == (sent.properties or {})
        assert (line["topic"], b64decode(line["body"])) == (sent.topic, sent.body)
    assert set(lines[0]) == {*PLACE, "tags", "keys", "properties", "body"}


def test_every_line_says_where_its_record_stands(copy: Path) -> None:
    lines, _ = dumped(copy)
    stored = [record for _, record in reference.read_commit_log(copy)]
    assert [[line[name] for name in PLACE] for line in lines] == [
        [getattr(record, name) for name in PLACE] for record in stored
    ]


def test_a_dump_changes_nothing(copy: Path) -> None:
    before = state_of_files(copy)
    dumped(copy)
    assert state_of_files(copy) == before


def test_a_store_without_a_message_gives_no_line(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL, housekeeping=False):
        assert dumped(tmp_path) == ([], [])
    assert dumped(tmp_path) == ([], [])


def test_an_open_store_gives_what_is_published(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL, housekeeping=False) as store:
        for messages in (1, 99):
            fill(store, messages)
            lines, damages = dumped(tmp_path)
            assert damages == []
            assert offsets(lines) == stored_offsets(tmp_path)


def test_a_store_that_another_process_appends_to_gives_ever_more_lines(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL, housekeeping=False):
        pass
    seen: list[list[int]] = []
    with appending(tmp_path):
        while len({len(found) for found in seen}) < 4:
            lines, damages = dumped(tmp_path)
            assert damages == []
            seen.append(offsets(lines))
    every = stored_offsets(tmp_path)
    for found in seen:
        assert found == every[: len(found)]


# --- damaged stores -------------------------------------------------------------------------------


def test_a_damaged_record_is_stepped_over_with_a_sentence(copy: Path) -> None:
    every = reference.read_commit_log(copy)
    offset, record = every[100]
    overwrite(log_path(copy, offset // FILE_BYTES), offset % FILE_BYTES + 88, b"\xff")
    lines, damages = dumped(copy)
    assert offsets(lines) == [other for other, _ in every if other != offset]
    place = f"{log_path(copy, offset // FILE_BYTES)}, byte {offset % FILE_BYTES}"
    assert damages == [f"{place}: {record.size} bytes are damaged (the CRC of the record does not match): skipped"]


def test_a_file_is_stepped_over_when_it_is_missing(copy: Path) -> None:
    every = stored_offsets(copy)
    log_path(copy, 1).unlink()
    lines, (damage,) = dumped(copy)
    assert offsets(lines) == [offset for offset in every if offset // FILE_BYTES != 1]
    assert damage.startswith(f"{log_path(copy, 1)}, byte 0: {FILE_BYTES} bytes are damaged (the file is missing)")


@pytest.mark.parametrize("size", [0, FILE_BYTES // 2, FILE_BYTES + 1])
def test_a_file_of_another_size_is_read_as_far_as_it_goes(copy: Path, size: int) -> None:
    every = reference.read_commit_log(copy)
    os.truncate(log_path(copy, 1), size)
    lines, damages = dumped(copy)
    lost = [
        offset for offset, record in every if offset // FILE_BYTES == 1 and offset % FILE_BYTES + record.size > size
    ]
    assert offsets(lines) == [offset for offset, _ in every if offset not in lost]
    assert len(damages) == bool(lost)


def test_a_missing_blank_record_does_not_end_the_dump(copy: Path) -> None:
    every = reference.read_commit_log(copy)
    end = max(offset + record.size for offset, record in every if offset < FILE_BYTES)
    overwrite(log_path(copy, 0), end, bytes(8))
    lines, (damage,) = dumped(copy)
    assert offsets(lines) == [offset for offset, _ in every]
    assert f"byte {end}: {FILE_BYTES - end} bytes" in damage


def test_a_file_may_begin_with_the_magic_code_where_a_size_should_stand(copy: Path) -> None:
    every = reference.read_commit_log(copy)
    end = max(offset + record.size for offset, record in every if offset < FILE_BYTES)
    overwrite(log_path(copy, 0), end, b"\xff" * 8)
    overwrite(log_path(copy, 1), 0, bytes.fromhex("daa320a7"))
    lines, (damage,) = dumped(copy)
    assert offsets(lines) == [offset for offset, _ in every if offset != FILE_BYTES]
    assert "no magic code" in damage


def test_half_a_record_at_the_end_is_told(written: Path, tmp_path: Path) -> None:
    root = copy_of_files(written, tmp_path / "copy")
    offset, last = reference.read_commit_log(root)[-1]
    end = offset + last.size
    half = reference.encode(replace(last, commit_log_offset=end))[: last.size // 2]
    overwrite(log_path(root, end // FILE_BYTES), end % FILE_BYTES, half)
    lines, (damage,) = dumped(root)
    assert len(lines) == 180
    assert damage.endswith("no record follows")


def test_a_topic_that_is_no_name_is_damage(tmp_path: Path) -> None:
    # Given records by a broker, whose CRC covers the body alone
    records = [ReferenceRecord(topic=topic, body=b"body") for topic in (ORDERS, "../../up", "bröken", PAYMENTS)]
    log = b""
    for record in records:
        log += reference.encode(replace(record, commit_log_offset=len(log)), crc_property=False)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(log.replace("ö".encode(), b"\xc3o").ljust(4096, b"\0"))
    lines, (damage,) = dumped(tmp_path)
    assert [line["topic"] for line in lines] == [ORDERS, PAYMENTS]
    assert "the topic is not a valid name" in damage


# --- the command ----------------------------------------------------------------------------------


def test_the_command_ends_with_0_and_prints_a_line_for_each_record(written: Path) -> None:
    done = run("dump", written)
    assert (done.returncode, done.stderr) == (0, "")
    assert [orjson.loads(line) for line in done.stdout.splitlines()] == dumped(written)[0]
    assert run("dump", written, "-o", "jsonl").stdout == done.stdout


def test_the_command_ends_with_6_after_damage_and_prints_the_rest(written: Path, tmp_path: Path) -> None:
    root = copy_with_runtime_file(written, tmp_path / "copy")
    log_path(root, 1).unlink()
    done = run("dump", root)
    lines, damages = dumped(root)
    assert done.returncode == 6
    assert len(done.stdout.splitlines()) == len(lines)
    assert done.stderr.splitlines() == damages


def test_the_command_ends_with_3_when_there_is_no_store(tmp_path: Path) -> None:
    done = run_here("dump", tmp_path / "nowhere")
    assert done.exit_code == 3
    assert "is not a directory" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["dump"], ["dump", "root", "-o", "table"], ["repair"]])
def test_the_command_ends_with_2_when_it_is_wrong(arguments: list[str]) -> None:
    assert run_here(*arguments).exit_code == 2


def test_the_command_stops_quietly_when_nobody_reads_on(tmp_path: Path) -> None:
    # Given more than fits into a pipe
    with open_store(tmp_path, SMALL, housekeeping=False) as store:
        for _ in range(3):
            fill(store)
    with subprocess.Popen(
        [*RMQ_STORE, "dump", tmp_path], cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert orjson.loads(child.stdout.readline())["commit_log_offset"] == 0
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(30) == -signal.SIGPIPE


def test_lines_are_written_while_the_log_is_read(written: Path) -> None:
    class Full(io.BytesIO):
        def write(self, content: Any, /) -> int:
            if self.tell():
                raise OSError("no more")
            return super().write(content)

    lines = Full()
    with pytest.raises(OSError, match="no more"):
        list(dump(written, lines))
    assert len(lines.getvalue().splitlines()) == 1


def test_the_next_file_that_a_broker_allocated_is_no_damage(written: Path, tmp_path: Path) -> None:
    root = copy_as_of_a_broker(written, tmp_path / "copy")
    count = len(list((root / "commitlog").iterdir()))
    log_path(root, count).write_bytes(bytes(FILE_BYTES))
    lines, damages = dumped(root)
    assert (len(lines), damages) == (180, [])


# --- one file -------------------------------------------------------------------------------------


def dumped_file(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    lines = io.BytesIO()
    damages = list(dump_file(path, lines))
    return [orjson.loads(line) for line in lines.getvalue().splitlines()], damages


def test_a_commit_log_file_gives_its_records_and_its_end(written: Path) -> None:
    lines, damages = dumped_file(log_path(written, 1))
    assert damages == []
    *records, blank = lines
    expected = [offset for offset in stored_offsets(written) if offset // FILE_BYTES == 1]
    assert [(line["kind"], line["position"]) for line in records] == [("record", at - FILE_BYTES) for at in expected]
    assert (blank["kind"], blank["position"] + blank["size"]) == ("blank", FILE_BYTES)
    assert {"topic", "body", "properties"} < set(records[0])


def test_damage_in_a_commit_log_file_is_told_and_stepped_over(written: Path, tmp_path: Path) -> None:
    root = copy_of_files(written, tmp_path / "copy")
    whole, _ = dumped_file(log_path(root, 0))
    overwrite(log_path(root, 0), whole[5]["position"] + 90, b"\xff\x00\xff")
    lines, (damage,) = dumped_file(log_path(root, 0))
    assert lines == whole[:5] + whole[6:]
    assert f"byte {whole[5]['position']}: {whole[5]['size']} bytes are not a record" in damage


def test_a_consume_queue_file_gives_its_entries(written: Path) -> None:
    path = written / "consumequeue" / ORDERS / "0" / f"{64 * 20:020d}"
    lines, _ = dumped_file(path)
    entries = reference.read_consume_queue(written, ORDERS, 0)
    assert [(line["commit_log_offset"], line["size"], line["tags_code"]) for line in lines] == entries[64:]
    assert [(line["position"], line["queue_offset"]) for line in lines[:2]] == [(0, 64), (20, 65)]


def test_a_checkpoint_gives_its_fields_and_both_marks(written: Path, tmp_path: Path) -> None:
    root = copy_of_files(written, tmp_path / "copy")
    overwrite(root / "checkpoint", 2048, b"\xff" * 8)
    (fields, first, second), _ = dumped_file(root / "checkpoint")
    assert fields["commit_log_timestamp"] > 0
    assert (first["position"], first["valid"], second["position"], second["valid"]) == (1024, True, 2048, False)
    assert second["sequence"] == -1


def test_the_runtime_file_gives_its_header_and_the_slots_in_use(written: Path) -> None:
    lines, _ = dumped_file(written / "shared")
    header, *slots = lines
    assert (header["kind"], header["queue_count"]) == ("header", 3)
    queues = [(line["topic"], line["queue_id"], line["max_offset"]) for line in slots if line["kind"] == "queue"]
    assert min(queues)[:2] == (ORDERS, 0)
    assert len(queues) == 3
    (group,) = [line for line in slots if line["kind"] == "group_queue"]
    assert (group["group"], group["committed_offset"], group["acknowledged"]) == ("billing", 20, "00000006")


def test_an_index_file_gives_its_header_its_slots_and_its_entries(written: Path) -> None:
    path = min((written / "index").iterdir())
    (header, *lines), _ = dumped_file(path)
    entries = [line for line in lines if line["kind"] == "entry"]
    slots = [line for line in lines if line["kind"] == "slot"]
    assert (header["kind"], len(entries), len(slots)) == ("header", header["next_number"] - 1, header["slots_used"])
    assert {line["commit_log_offset"] for line in entries} <= set(stored_offsets(written))
    content = path.read_bytes()
    for line in entries:
        assert int.from_bytes(content[line["position"] + 4 :][:8], "big") == line["commit_log_offset"]


def test_a_config_file_gives_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_bytes(b'{\n\t"offsetTable":{\n\t\t"TopicA@G1":{0:5,1:7\n\t\t}\n\t}\n}')
    assert dumped_file(path) == ([{"offsetTable": {"TopicA@G1": {"0": 5, "1": 7}}}], [])


def test_every_file_of_a_store_is_known_and_no_other(written: Path, tmp_path: Path) -> None:
    paths = [path for path in written.rglob("*") if path.is_file() and path.name != "lock"]
    assert all(dumped_file(path)[0] for path in paths if any(path.read_bytes()))
    (tmp_path / "other").write_bytes(b"text")
    with pytest.raises(StoreUnusable, match="is not a file of a store, by its place and name"):
        dumped_file(tmp_path / "other")
    (tmp_path / "checkpoint").write_bytes(b"short")
    done = run("dump", tmp_path / "checkpoint")
    assert (done.returncode, done.stdout) == (3, "")
    assert "has 5 bytes instead of 4096" in done.stderr


def test_the_command_dumps_a_file(written: Path) -> None:
    done = run("dump", written / "checkpoint")
    assert (done.returncode, done.stderr) == (0, "")
    assert [orjson.loads(line) for line in done.stdout.splitlines()] == dumped_file(written / "checkpoint")[0]
