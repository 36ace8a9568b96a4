"""What groups did in a period: rates, failures, waits, runs, and when nothing will wait any more."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.health import words
from rmqclient.metrics import Sampler, figures_of, points_of
from rmqclient.store import open_store
from rmqclient.store.history.figures import Figures, quantile
from rmqclient.store.history.rings import CLASSES, Row
from rmqclient.workers.console import terminal
from rmqclient.workers.console.layout import width_of
from tests.metrics.conftest import Poison, is_finished, wait_for
from tests.workers.commands.test_cli import run

SENT = 40
RUNS_S = 0.02


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store whose group took 20 ms for each message, and failed each tenth for good."""
    root = tmp_path_factory.mktemp("history") / "store"
    app = App(str(root))

    @app.handler("orders", group="billing", retry=RetryPolicy(dead_letter_on=(Poison,)))
    def bill(message: ReceivedMessage) -> None:
        time.sleep(RUNS_S)
        if int(message.body) % 10 == 0:
            raise Poison

    with Producer(root) as producer, open_store(root, housekeeping=False) as store:
        producer.create_topic("orders", 2)
        store.history.record()
        for number in range(SENT):
            producer.send(Message("orders", b"%d" % number))
        with Sampler(root) as sampler:
            consumer = PushConsumer(root, app.handlers)
            consumer.start()
            wait_for(lambda: is_finished(sampler.sample()), "everything is handled")
            consumer.close()
        store.history.record()
        producer.send(Message("orders", b"1"))
        store.history.record()
    return root


@pytest.fixture
def billing(root: Path) -> Figures:
    now_ms = time.time_ns() // 1_000_000
    (figures,) = figures_of(root, now_ms - 3_600_000, now_ms)
    return figures


def test_each_message_is_counted_by_what_became_of_it(billing: Figures) -> None:
    row = billing.row
    assert (row.published, row.handled, row.failed, row.dead_lettered) == (SENT + 1, 36, 4, 4)
    assert billing.failed_ratio == pytest.approx(0.1)
    assert billing.lag == 1
    assert billing.handled_per_s == pytest.approx(36 / billing.seconds)
    assert billing.drained_in_s is None  # more came in than was handled


def test_waits_and_runs_are_those_of_the_calls(billing: Figures) -> None:
    assert sum(billing.row.waited) == pytest.approx(SENT, abs=SENT / 8)
    assert sum(billing.row.ran) == pytest.approx(SENT, abs=SENT / 8)
    runs, half, most = billing.ran_s(0.95), billing.waited_s(0.5), billing.waited_s(0.95)
    assert runs is not None
    assert half is not None
    assert most is not None
    assert runs >= 0.01  # the lower bound of the class of 20 ms
    assert half <= most


def test_a_chart_has_the_parts_of_the_period(root: Path, billing: Figures) -> None:
    now_ms = time.time_ns() // 1_000_000
    points = points_of(root, now_ms - 3_600_000, now_ms)
    assert sum(point.rows["billing"].handled for point in points if point.rows) == billing.row.handled
    assert [point.ended_ms for point in points] == sorted(point.ended_ms for point in points)


def test_top_since_shows_the_period(root: Path) -> None:
    (row,) = orjson.loads(run("top", "--since", "1h", "--store", str(root), "-o", "json").stdout)
    assert (row["group"], row["published"], row["handled"], row["dead_lettered"]) == ("billing", SENT + 1, 36, 4)
    assert row["failed_ratio"] == 0.1
    lines = run("top", "--since", "1h", "--store", str(root)).stdout.splitlines()
    assert max(map(len, lines[1:])) <= 80
    assert lines[-1].startswith("billing ")
    assert row["out_s"] == pytest.approx(40 / row["seconds"], abs=1e-4)


def test_the_list_of_groups_shows_the_period_too(root: Path) -> None:
    store = ("--store", str(root))
    (row,) = orjson.loads(run("group", "ls", "--since", "1h", *store, "-o", "json").stdout)
    (same,) = orjson.loads(run("top", "--since", "1h", *store, "-o", "json").stdout)
    assert (row["group"], row["handled"]) == (same["group"], same["handled"])
    assert run("group", "ls", "--since", "1h", *store).stdout.splitlines()[-1].startswith("billing ")
    assert "billing" not in run("group", "ls", "--since", "1h", "--where", "handled > 1000", *store).stdout


@pytest.mark.parametrize("sort", ["lag", "in_s", "out_s", "group"])
def test_top_since_is_sorted_by_what_its_rows_are_called(root: Path, sort: str) -> None:
    (row,) = orjson.loads(run("top", "--since", "1h", "--sort", sort, "--store", str(root), "-o", "json").stdout)
    assert sort in row


def test_the_history_knows_a_period_in_which_no_group_that_is_asked_for_did_anything(root: Path) -> None:
    first, *_, last = run("top", "--since", "1h", "--filter", "zzz", "--store", str(root)).stdout.splitlines()
    assert not first.endswith("knows 0 ms")
    assert "no history" not in last


@pytest.mark.parametrize(
    "option", [("--once",), ("-n", "1"), ("--interval", "1s"), ("--message-age", "1s"), ("--sort", "in_flight")]
)
def test_what_has_no_effect_beside_since_is_refused(root: Path, option: tuple[str, ...]) -> None:
    shown = run("top", "--since", "1h", *option, "--store", str(root))
    assert (shown.exit_code, shown.stdout) == (2, "")


@pytest.mark.parametrize("since", ["0001-01-01T00:00Z", "9999-12-31T23:59Z", "0001-12-31T00:00"])
def test_a_time_at_an_end_of_the_calendar_is_wrong_usage(root: Path, since: str) -> None:
    assert run("top", "--since", since, "--store", str(root)).exit_code == 2


LONG = "a-group-with-a-name-as-long-as-those-that-people-give-them"
SLOW = Row(published=123_456, handled=99_999, failed=99_999, waited=(*[0] * (CLASSES - 1), 3))


@pytest.mark.parametrize("columns", [None, 80, 120])
@pytest.mark.parametrize(
    "figures",
    [
        pytest.param(Figures(LONG, 3_600.0, SLOW._replace(handled=130_000), 1_234_567), id="drained in days"),
        pytest.param(Figures(LONG, 3_600.0, SLOW._replace(skipped=40_000), 2_800), id="drained in minutes"),
        pytest.param(Figures(LONG, 0.1, SLOW, 1_234_567), id="fast"),
        pytest.param(Figures("键-世界-" * 7, 3_600.0, SLOW, 5), id="wide letters"),
    ],
)
def test_top_since_has_the_width_of_the_terminal_and_whole_names_off_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, figures: Figures, columns: int | None
) -> None:
    monkeypatch.setattr(terminal, "columns", lambda: columns)
    monkeypatch.setattr("rmqclient.metrics.figures_of", lambda *_: [figures])
    _, _, *lines = run("top", "--since", "1h", "--store", str(root)).stdout.splitlines()
    head, line = lines
    assert width_of(head) == width_of(line)
    if columns is None:
        assert line.startswith(f"{figures.group} ")
    else:
        assert width_of(line) <= columns
        assert ("…" in line) == (columns == 80)
    drained = figures.drained_in_s
    assert line.endswith("never" if drained is None else words.age(drained))


def test_top_since_of_a_store_without_a_history_says_so(tmp_path: Path) -> None:
    with Producer(tmp_path / "store") as producer:
        producer.create_topic("orders", 1)
    shown = run("top", "--since", "1h", "--store", str(tmp_path / "store"))
    assert shown.exit_code == 0
    assert orjson.loads(run("top", "--since", "1h", "--store", str(tmp_path / "store"), "-o", "json").stdout) == []


def test_where_no_store_is_there_is_no_history(tmp_path: Path) -> None:
    assert run("top", "--since", "1h", "--store", str(tmp_path / "nowhere")).exit_code != 0


def test_a_quantile_lies_in_the_class_in_which_that_part_is_reached() -> None:
    classes = [0] * CLASSES
    classes[3], classes[6] = 50, 50  # up to 5 ms, and from 25 to 50 ms
    assert quantile(classes, 0.25) == pytest.approx(0.00375)
    assert quantile(classes, 0.75) == pytest.approx(0.0375)
    assert quantile([0] * CLASSES, 0.5) is None
    assert quantile([*[0] * (CLASSES - 1), 3], 0.5) == 300


def test_what_waits_is_drained_at_the_rates_of_the_period() -> None:
    figures = Figures("billing", 10.0, Row(published=100, handled=300), 60)
    assert figures.drained_in_s == pytest.approx(3.0)
    assert figures._replace(lag=0).drained_in_s == 0
    assert figures._replace(row=Row(published=300, handled=100)).drained_in_s is None


def test_messages_that_a_group_does_not_want_are_counted_too(tmp_path: Path) -> None:
    app = App(str(tmp_path / "store"))

    @app.handler("orders", group="billing", tags="paid")
    def bill(_: ReceivedMessage) -> None:
        pass

    with Producer(tmp_path / "store") as producer, open_store(tmp_path / "store", housekeeping=False) as store:
        producer.create_topic("orders", 1)
        store.history.record()
        for number in range(20):
            producer.send(Message("orders", b"1", tags="open" if number % 10 else "paid"))
        with Sampler(store.root) as sampler:
            consumer = PushConsumer(store.root, app.handlers)
            consumer.start()
            wait_for(lambda: is_finished(sampler.sample()), "everything is handled")
            consumer.close()
        store.history.record()
    (figures,) = figures_of(tmp_path / "store", 0, time.time_ns() // 1_000_000)
    assert (figures.row.published, figures.row.handled, figures.row.skipped) == (20, 2, 18)
    assert figures.finished_per_s == pytest.approx(figures.published_per_s)


def test_what_a_group_does_not_want_is_drained_with_the_rest() -> None:
    tagged = Figures("billing", 10.0, Row(published=100, handled=30, skipped=250, dead_lettered=15, lost=5), 60)
    assert tagged.handled_per_s == pytest.approx(3.0)
    assert tagged.finished_per_s == pytest.approx(30.0)
    assert tagged.drained_in_s == pytest.approx(3.0)
