"""What a person reads: the banner, and messages that cannot drive a terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.handler import Handler
from rmqclient.store import WorkerState, WorkerStatus
from rmqclient.store.bodies import Compression, compress
from rmqclient.workers.console import status
from tests.support.received import received


def handler(topic: str, threads: int = 1) -> Handler:
    return Handler(topic=topic, group="billing", tags="paid", threads=threads, function=print)


def test_the_banner_tells_store_durability_workers_and_handlers() -> None:
    text = status.banner(Path("data"), [handler("orders", 4)], processes=2, durability="sync")
    assert "data  (durability: sync)" in text
    assert "workers     2" in text
    assert "orders -> billing  tags paid  4 threads" in text


def test_the_banner_tells_which_handlers_get_everything_in_every_worker() -> None:
    everywhere = replace(handler("prices"), broadcast=True)
    text = status.banner(Path("data"), [everywhere, handler("orders")], processes=2, durability="sync")
    assert [line.endswith("1 thread  broadcast") for line in text.splitlines() if "->" in line] == [True, False]


def test_the_banner_stays_under_ten_lines() -> None:
    text = status.banner(Path("data"), [handler(f"t{n}") for n in range(30)], processes=2, durability="async")
    assert len(text.splitlines()) < 10
    assert "and 25 more" in text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"plain", "plain"),
        ("Grüße".encode(), "Grüße"),
        (b"\x1b[2Jgone", "\\x1b[2Jgone"),
        (b"two\nlines", "two\\nlines"),
        (b"\xff\x00", "\\xff\\x00"),
    ],
)
def test_a_body_cannot_drive_a_terminal(body: bytes, text: str) -> None:
    assert status.printable(body) == text


def test_a_worker_without_a_beat_or_a_message_has_no_ages() -> None:
    row = status.worker_row(
        WorkerStatus(
            slot=3,
            pid=10,
            supervisor_pid=9,
            state=WorkerState.STARTING,
            beat_age_ms=None,
            message_age_ms=12.345,
            in_flight=1,
            handled=0,
            failed=0,
        )
    )
    assert (row["state"], row["beat_age_ms"], row["message_age_ms"]) == ("starting", None, 12.3)


def test_a_body_is_shown_as_it_was_sent() -> None:
    message = received(compress(b'{"order": 7}', Compression.ZSTD), sys_flag=Compression.ZSTD.value)

    assert status.message_row(message)["body"] == '{"order": 7}'
    assert status.message_line(message).endswith('  {"order": 7}')


def test_a_body_that_cannot_be_opened_is_shown_as_it_is_stored_with_the_reason() -> None:
    message = received(b"damaged", sys_flag=Compression.ZSTD.value)

    row = status.message_row(message)
    assert (row["body"], row["body_base64"]) == (None, "ZGFtYWdlZA==")
    assert row["body_error"].startswith("a compressed body of 7 bytes is damaged")
    assert "  <a compressed body of 7 bytes is damaged: " in status.message_line(message)
