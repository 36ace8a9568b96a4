"""The settings with which a RocketMQ broker opens a directory. `make interop` starts real brokers with them."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from rmqclient.store import Message, StoreConfig, open_store
from rmqclient.store.errors import ConfigMismatch, StoreUnusable
from rmqclient.store.inspect.broker_conf import broker_conf
from rmqclient.store.settings import config_file
from tests.support.written import SMALL, appender_of, state_of_files, written_store

GOLDEN = Path(__file__).parents[2] / "compat" / "golden"


def properties(text: str) -> dict[str, str]:
    """Read the lines as java.util.Properties does."""
    pairs = (line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: unescaped(value) for name, value in pairs}


def unescaped(value: str) -> str:
    assert value.isascii()
    units = re.sub(r"\\u([0-9a-f]{4})|\\(.)", lambda found: chr(int(found[1], 16)) if found[1] else found[2], value)
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")


def test_a_store_of_ours_is_opened_with_its_own_sizes_and_rocketmqs_usual_names(tmp_path: Path) -> None:
    root = written_store(tmp_path / "store")
    found = properties(broker_conf(root))
    assert found["storePathRootDir"] == str(root)
    assert found["storePathCommitLog"] == str(root / "commitlog")
    assert found["mappedFileSizeCommitLog"] == str(SMALL.commit_log_file_bytes)
    assert found["mappedFileSizeConsumeQueue"] == str(SMALL.consume_queue_file_entries * 20)
    assert found["maxHashSlotNum"] == str(SMALL.index_slots)
    assert found["maxIndexNum"] == str(SMALL.index_entries)
    assert (found["brokerClusterName"], found["brokerName"]) == ("DefaultCluster", "broker-a")


def test_what_rocketmq_5_would_do_with_files_of_its_own_is_switched_off(tmp_path: Path) -> None:
    found = properties(broker_conf(written_store(tmp_path / "store")))
    assert found["timerWheelEnable"] == found["enableCompaction"] == "false"


def test_the_port_is_the_one_that_offset_message_ids_name(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        sent = appender_of(store).append(Message("orders", b"x"))
        identifier = store.messages.read(sent.commit_log_offset).offset_message_id
    assert int(properties(broker_conf(tmp_path / "store"))["listenPort"]) == int(identifier[8:16], 16)


def test_a_store_of_a_broker_is_opened_with_the_sizes_of_its_files(tmp_path: Path) -> None:
    root = unpacked(tmp_path)
    before = state_of_files(root)
    found = properties(broker_conf(root))
    assert found["mappedFileSizeCommitLog"] == "65536"
    assert found["mappedFileSizeConsumeQueue"] == "1280"
    assert (found["maxHashSlotNum"], found["maxIndexNum"]) == ("64", "64")
    assert state_of_files(root) == before


def test_a_broker_gets_its_own_names_back(tmp_path: Path) -> None:
    # Given a broker that was named after its host, in a cluster of its own
    root = unpacked(tmp_path)
    path = root / config_file.TOPICS_FILE
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("DefaultCluster", "shop").replace("broker-a", "mq1.example.org"), encoding="utf-8")
    # Then the settings say so
    found = properties(broker_conf(root))
    assert (found["brokerClusterName"], found["brokerName"]) == ("shop", "mq1.example.org")


@pytest.mark.parametrize("name", ["with space", "back\\slash", "größe", "日本 𝄞", "= and # and !"])
def test_any_directory_can_be_named(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    open_store(root, SMALL).close()
    assert properties(broker_conf(root))["storePathRootDir"] == str(root)


def test_a_relative_directory_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(tmp_path / "store", SMALL).close()
    monkeypatch.chdir(tmp_path)
    assert properties(broker_conf(Path("store")))["storePathRootDir"] == str(tmp_path / "store")


def test_a_comma_is_refused_because_rocketmq_splits_there(tmp_path: Path) -> None:
    open_store(tmp_path / "a,b", SMALL).close()
    with pytest.raises(StoreUnusable, match="comma"):
        broker_conf(tmp_path / "a,b")


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable):
        broker_conf(tmp_path / "missing")
    with pytest.raises(StoreUnusable):
        broker_conf(tmp_path)


def test_settings_of_another_version_are_refused(tmp_path: Path) -> None:
    open_store(tmp_path / "store", StoreConfig()).close()
    (tmp_path / "store" / "store.json").write_text('{"format_version":2}', encoding="utf-8")
    with pytest.raises(ConfigMismatch):
        broker_conf(tmp_path / "store")


def unpacked(scratch: Path) -> Path:
    with tarfile.open(GOLDEN / "broker-4.9.7-stopped.tgz") as archive:
        archive.extractall(scratch, filter="data")
    return scratch / "broker-4.9.7-stopped"
