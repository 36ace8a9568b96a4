"""``rmq doctor`` beside an application and a clock, and what ``rmq check`` leaves as it is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy, StoreConfig
from rmqclient.store import open_store
from rmqclient.store.config import RetentionConfig
from rmqclient.store.observe.reading import Reading
from rmqclient.workers.commands.advice import Line, application, clock
from tests.workers.commands.test_cli import data, run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store in which somebody sent to one of its two topics."""
    with open_store(tmp_path / "store") as store, Producer(store) as producer:
        producer.create_topic("silent", 1)
        producer.send(Message("orders", b"1"))
    return tmp_path / "store"


def handled(app: App, topic: str, group: str, policy: RetryPolicy | None = None) -> None:
    @app.handler(topic, group=group, retry=policy)
    def handle(message: ReceivedMessage) -> None:
        del message


def advice(root: Path, app: App) -> list[Line]:
    with Reading(str(root)) as reading:
        return list(application(app, reading.queues()))


def test_a_handler_of_a_topic_that_is_not_there_or_that_nobody_sends_to_is_found(root: Path) -> None:
    app = App()
    for topic, group in (("orders", "billing"), ("order", "mail"), ("silent", "audit")):
        handled(app, topic, group)
    found = advice(root, app)
    assert ("ok", "handler billing", "orders has had 1 messages", "") in found
    assert ("warn", "handler mail", "there is no topic order", "did you mean orders?") in found
    assert [line[:3] for line in found if line[1] == "handler audit"] == [
        ("warn", "handler audit", "nobody has sent to silent")
    ]


@pytest.mark.parametrize(
    ("hours", "policy", "level"),
    [
        (72, None, "ok"),
        (2, None, "bad"),
        (2, RetryPolicy(max_retries=3), "ok"),
        (1, RetryPolicy(delay_levels=(1, 17)), "bad"),
        (1, RetryPolicy(delays=(9_000.0,)), "ok"),
    ],
)
def test_a_retention_shorter_than_the_longest_wait_by_a_level_is_found(
    root: Path, hours: int, policy: RetryPolicy | None, level: str
) -> None:
    app = App(config=StoreConfig(retention=RetentionConfig(file_reserved_hours=hours)))
    handled(app, "orders", "billing", policy)
    (line,) = [line for line in advice(root, app) if line[1] == "retention"]
    assert line[0] == level
    assert ("a failed message of billing waits up to" in line[2]) is (level == "bad")


def test_a_clock_behind_the_newest_message_is_found(root: Path) -> None:
    with Reading(str(root)) as reading:
        queues = reading.queues()
        (at,) = [reading.records.stored_ms(each.queue, 0) for each in queues if each.max_offset]
        assert at is not None
        assert clock(reading, queues).level == "ok"
        assert clock(reading, queues, now_ms=at).level == "ok"
        assert clock(reading, queues, now_ms=at - 35_000)[:3] == ("warn", "clock", "35 s behind the newest message")


def test_doctor_takes_an_application_as_run_does(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)
    Path("shop.py").write_text(
        "from rmqclient import App\napp = App()\n\n\n@app.handler('order', group='mail')\ndef handle(m): ...\n"
    )
    rows = data(run("doctor", "--app", "shop.py:app", "-o", "json", "--store", str(root)))
    assert isinstance(rows, list)
    found = {row["subject"]: row for row in rows}
    assert found["handler mail"]["remedy"] == "did you mean orders?"
    assert found["clock"]["level"] == "ok"


@pytest.mark.guarantee("G55")
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("what", ["all", "ready", "live"])
def test_a_check_changes_no_byte_of_a_store_and_holds_none_of_its_locks(root: Path, what: str, is_open: bool) -> None:
    if is_open:
        with open_store(root, housekeeping=False):
            unchanged(root, what)
    else:
        unchanged(root, what)


def unchanged(root: Path, what: str) -> None:
    def contents() -> dict[str, tuple[str, int]]:
        files = [each for each in sorted(root.rglob("*")) if each.is_file()]
        return {each.name: (hashlib.sha256(each.read_bytes()).hexdigest(), each.stat().st_mtime_ns) for each in files}

    before = contents()
    for output in ("text", "json", "nagios", "prometheus"):
        run("check", what, "--store", str(root), "-o", output)
    assert contents() == before
