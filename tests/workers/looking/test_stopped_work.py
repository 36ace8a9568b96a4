"""What stops for a reason that only a log would tell: `rmq check` knows it, with the remedy, until it goes on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.health import findings
from rmqclient.health.findings import Finding
from rmqclient.store import MessageStore, layout, open_store
from rmqclient.store.observe.reading import Reading
from tests.client.conftest import consuming, wait_for
from tests.support.stores import SMALL, appender_of

DAY_MS = 86_400_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with open_store(root, SMALL, housekeeping=False) as opened:
        yield opened


def found(root: Path, check: str, *, after_ms: int = 0) -> list[Finding]:
    """Return what a check finds, so long from now; what is well is left out."""
    with Reading(str(root)) as reading:
        seen = findings.look(reading, now_ms=time.time_ns() // 1_000_000 + after_ms)
    return [each for each in seen if each.check == check and each.level]


@pytest.mark.guarantee("G122")
def test_a_pass_of_the_housekeeper_that_fails_is_named_until_it_succeeds(root: Path) -> None:
    config = dataclasses.replace(SMALL, offset_persist_interval_ms=20)
    with open_store(root, config) as store, Producer(store) as producer:
        # Given a group whose offsets are written again and again
        app = App(root)
        app.handler("orders", group="billing")(_nothing)
        with consuming(store, app):
            producer.send(Message("orders", b""))
            written = root / "config" / "consumerOffset.json"
            wait_for(written.exists, "the offsets")

            # When the file cannot be replaced any more
            while not written.is_dir():
                written.unlink(missing_ok=True)
                with suppress(FileExistsError):  # it was written again
                    written.mkdir()
            (written / "in the way").touch()

            # Then the pass is named, and forgotten when it succeeds
            wait_for(lambda: found(root, "passes"), "the finding")
            (finding,) = found(root, "passes")
            assert finding.level == findings.CRITICAL
            assert "consumerOffset.json" in finding.state
            assert "log" in finding.remedy
            (written / "in the way").unlink()
            written.rmdir()
            wait_for(lambda: not found(root, "passes"), "no finding")


@pytest.mark.guarantee("G122")
def test_messages_that_are_stepped_over_are_told_for_a_day(root: Path, store: MessageStore) -> None:
    # Given a message that waits, and whose record is damaged on the disk
    sent = appender_of(store).append(Message("orders", b"body"), delay_level=1)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(sent.commit_log_offset + layout.RECORD_HEADER.size)
        log.write(b"dyob")
    assert found(root, "passes") == []

    # When it is stepped over
    store.schedule.now_ms = lambda: time.time_ns() // 1_000_000 + DAY_MS
    store.schedule.look()

    # Then that is told, for a day
    (finding,) = found(root, "passes")
    assert (finding.level, finding.values[0].value) == (findings.WARNING, 1)
    assert "log" in finding.remedy
    assert found(root, "passes", after_ms=2 * DAY_MS) == []


@pytest.mark.guarantee("G122")
def test_a_retry_that_cannot_be_stored_is_critical_until_it_is_stored(root: Path, store: MessageStore) -> None:
    # Given a handler that fails, where nothing can be stored after a failed flush
    app = App(root)

    @app.handler("orders", group="billing")
    def bill(_: ReceivedMessage) -> None:
        raise ValueError("no number")

    with Producer(store) as producer:
        producer.send(Message("orders", b""))
    store.state.poisoned = 5
    with consuming(store, app, ConsumerConfig(local_retry_ms=20)):
        # Then its group is critical
        wait_for(lambda: found(root, "lag"), "the finding")
        (finding,) = found(root, "lag")
        assert (finding.level, finding.subject) == (findings.CRITICAL, "billing")
        assert "cannot be stored" in finding.state
        assert "log" in finding.remedy

        # Until it can be stored
        store.state.poisoned = 0
        wait_for(lambda: not found(root, "lag"), "no finding")


def _nothing(_: ReceivedMessage) -> None:
    """Handle a message."""
