"""The flights example: the dataset, the counting, the check of the result, and workers of which one is killed."""

from __future__ import annotations

import io
import math
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from examples.flights import app, stage
from examples.flights.app import GROUPS, QUEUES
from examples.flights.dataset import Flight, aircraft, airlines, flights, parse
from examples.flights.outcome import chart, report
from examples.flights.outcome.tally import AirTime, Delays, Tally, computed, stored
from examples.flights.progress import display
from examples.flights.replay import message_for, replay
from examples.flights.results import Results, select
from examples.flights.stage import Counts, Processes
from rmqclient import RetryPolicy
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.consuming.reader import Reader
from rmqclient.store import MessageStore, open_store
from tests.client.conftest import wait_for

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
    "origin,dest,air_time,distance,hour,minute,time_hour\n"
)
DEPARTED = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z\n"
CANCELLED = "2013,1,2,NA,1540,NA,NA,1747,NA,EV,4352,NA,EWR,CVG,NA,569,15,40,2013-01-02T20:00:00Z\n"
SLICE = 3_000


@pytest.fixture(scope="module")
def slice_of_flights() -> list[Flight]:
    return list(flights(SLICE))


# --- dataset --------------------------------------------------------------------------------------


def test_a_line_of_the_dataset_becomes_a_flight() -> None:
    (flight,) = parse([HEADER, DEPARTED])
    assert flight == Flight(
        carrier="UA",
        number=1545,
        tail_number="N14228",
        origin="EWR",
        destination="IAH",
        scheduled="2013-01-01T10:00:00Z",
        hour=5,
        departure_time=517,
        departure_delay_minutes=2,
        air_minutes=227,
        distance_miles=1400,
    )
    assert (flight.code, flight.name, flight.cancelled) == ("UA1545", "UA1545 2013-01-01T10:00:00Z", False)


def test_a_flight_without_a_departure_time_was_cancelled() -> None:
    (flight,) = parse([HEADER, CANCELLED])
    assert flight.cancelled
    assert (flight.tail_number, flight.departure_delay_minutes, flight.air_minutes) == (None, None, None)


@pytest.mark.parametrize("lines", [[], ["year,month\n", "2013,1\n"]], ids=["nothing", "other columns"])
def test_a_file_without_the_columns_is_refused(lines: list[str]) -> None:
    with pytest.raises(ValueError, match="carrier"):
        list(parse(lines))


def test_the_dataset_is_read_in_its_order_up_to_the_limit(slice_of_flights: list[Flight]) -> None:
    assert slice_of_flights[0].name == "UA1545 2013-01-01T10:00:00Z"
    assert len(slice_of_flights) == len({flight.name for flight in slice_of_flights}) == SLICE
    assert list(flights(2)) == slice_of_flights[:2]


def test_carriers_and_aircraft_have_names() -> None:
    assert airlines()["B6"] == "JetBlue Airways"
    assert aircraft()["N328AA"] == "1986 Boeing 767-223"


# --- message --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "tag", "key"), [(DEPARTED, "departed", "UA1545"), (CANCELLED, "cancelled", "EV4352")])
def test_a_message_has_the_flight_as_json_a_tag_and_a_key(tmp_path: Path, line: str, tag: str, key: str) -> None:
    (flight,) = parse([HEADER, line])
    message = message_for(flight)
    assert (message.topic, message.tags, message.keys) == ("flights", tag, (key,))

    replay(tmp_path / "store", [flight])
    with open_store(tmp_path / "store") as store:
        (received,) = Reader(store).tail("flights", start="earliest", follow=False)
    assert msgspec.json.decode(received.body, type=Flight) == flight
    assert received.sharding_key == (flight.tail_number or flight.code)


def test_the_flights_of_an_aircraft_stand_in_one_queue_in_their_order(
    tmp_path: Path, slice_of_flights: list[Flight]
) -> None:
    replay(tmp_path / "store", slice_of_flights)
    with open_store(tmp_path / "store") as store:
        received = list(Reader(store).tail("flights", start="earliest", follow=False))
    found = [msgspec.json.decode(message.body, type=Flight) for message in received]
    queues: dict[str, set[int]] = {}
    for message, flight in zip(received, found, strict=True):
        queues.setdefault(flight.tail_number or flight.code, set()).add(message.queue_id)
    assert found == slice_of_flights
    assert {len(queue_ids) for queue_ids in queues.values()} == {1}
    assert {message.queue_id for message in received} == set(range(QUEUES))


# --- plain computation ----------------------------------------------------------------------------


def test_the_plain_computation_adds_up_delays_and_minutes() -> None:
    (first,), (cancelled,) = parse([HEADER, DEPARTED]), parse([HEADER, CANCELLED])
    early = msgspec.structs.replace(first, number=7, departure_delay_minutes=-4, air_minutes=None)
    tally = computed([first, early, cancelled])
    assert tally.delays == {("EWR", "UA", 5): Delays(2, 2, -2), ("EWR", "EV", 15): Delays(1, 0, 0)}
    assert tally.air_time == {"N14228": AirTime(2, 227), None: AirTime(1, 0)}
    assert tally.names["delays"] == tally.names["minutes"] == Counter([first.name, early.name, cancelled.name])
    assert tally.delays_by(lambda origin, _carrier, _hour: origin) == {"EWR": Delays(3, 2, -2)}


def test_a_mean_is_over_the_flights_that_departed() -> None:
    assert (Delays(4, 2, 30).mean, Delays(4, 2, 30).cancelled) == (15.0, 0.5)
    assert math.isnan(Delays(1, 0, 0).mean)
    assert Delays().cancelled == 0.0


# --- counting once --------------------------------------------------------------------------------


def test_a_flight_counts_once_however_often_and_by_whomever_it_is_handled(tmp_path: Path) -> None:
    with closing(Results(tmp_path, "minutes")) as first, closing(Results(tmp_path, "minutes")) as other:
        for results in (first, other, first):
            results.count(3, "UA1545 2013-01-01T10:00:00Z", "N14228", 227)
        first.count(3, "UA1 2013-01-01T10:00:00Z", "N14228", None)
    assert stored(tmp_path).air_time == {"N14228": AirTime(2, 227)}
    assert report.redeliveries(tmp_path) == 2


def test_what_a_killed_process_has_counted_is_there(tmp_path: Path) -> None:
    child = (
        "import os, signal, sys; from pathlib import Path; from examples.flights.results import Results\n"
        "Results(Path(sys.argv[1]), 'minutes').count(0, 'UA1', 'N1', 5)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", child, str(tmp_path)], cwd=stage.REPOSITORY, check=False)
    assert done.returncode == -9
    assert list(select(tmp_path, "minutes", "SELECT name, air_minutes FROM minutes")) == [("UA1", 5)]


# --- the check ------------------------------------------------------------------------------------


@pytest.fixture
def right(slice_of_flights: list[Flight]) -> Tally:
    return computed(slice_of_flights)


def lose_a_flight(found: Tally) -> None:
    del found.names["minutes"]["UA1545 2013-01-01T10:00:00Z"]


def count_a_flight_twice(found: Tally) -> None:
    found.names["delays"]["UA1545 2013-01-01T10:00:00Z"] += 1


def count_a_flight_that_was_not_sent(found: Tally) -> None:
    found.names["delays"]["UA0 2013-01-01T10:00:00Z"] += 1


def add_a_minute_of_delay(found: Tally) -> None:
    found.delays["EWR", "UA", 5].minutes += 1


def add_a_minute_in_the_air(found: Tally) -> None:
    found.air_time["N14228"].minutes += 1


@pytest.mark.parametrize(
    ("spoil", "problem", "once"),
    [
        (lose_a_flight, "minutes: flights not counted: 1, such as UA1545 2013-01-01T10:00:00Z", SLICE - 1),
        (count_a_flight_twice, "delays: flights counted more than once: 1, such as UA1545", SLICE - 1),
        (count_a_flight_that_was_not_sent, "delays: flights counted but never sent: 1, such as UA0", SLICE),
        (add_a_minute_of_delay, "delays by airport, carrier and hour differ", SLICE),
        (add_a_minute_in_the_air, "minutes by aircraft differ", SLICE),
    ],
)
def test_the_check_notices(
    slice_of_flights: list[Flight], right: Tally, spoil: Callable[[Tally], None], problem: str, once: int
) -> None:
    spoil(right)
    verdict = report.check(right, computed(slice_of_flights))
    assert len(verdict.problems) == 1
    assert verdict.problems[0].startswith(problem)
    assert verdict.line == f"{once} of {SLICE} flights, each counted once per group"


# --- chart ----------------------------------------------------------------------------------------


def test_the_chart_says_what_it_shows(tmp_path: Path, right: Tally) -> None:
    assert chart.draw(right, tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")
    assert chart.finding(right).startswith("Delays build up through the day: ")
    assert [chart.clock(hour) for hour in (5, 12, 13, 24)] == ["5 am", "12 pm", "1 pm", "12 am"]


def test_a_chart_without_a_line_is_refused(tmp_path: Path, slice_of_flights: list[Flight]) -> None:
    with pytest.raises(ValueError, match="two hours"):
        chart.draw(computed(slice_of_flights[:5]), tmp_path / "delays.png")


# --- progress -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "file"])
def test_progress_shows_the_latest_counts_and_what_is_said(is_terminal: bool) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=is_terminal, width=80)
    with display(console, 2_000) as shown:
        shown.show(Counts(1_500, {"delays": 1_200, "minutes": 1_100}))
        shown.say("something happened")
        shown.show(Counts(2_000, {"delays": 1_999, "minutes": 1_998}))
    for text in ("sent", "delays", "minutes", "2,000", "1,999", "1,998", "/s", "something happened"):
        assert text in output.getvalue()


# --- processes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where one run has its files."""

    store: Path
    results: Path
    log: Path


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "store", tmp_path / "results", tmp_path / "log")
    yield made
    if made.log.exists():
        sys.stdout.write(made.log.read_text(encoding="utf-8"))  # shown when the test fails


def wait_for_count(store: MessageStore, watched: Processes, goal: int) -> None:
    while stage.counts(store).slowest < goal:
        watched.look(stage.counts(store))


@pytest.mark.guarantee("G7")
def test_every_flight_counts_once_although_a_worker_is_killed_and_another_goes_on(
    place: Place, slice_of_flights: list[Flight]
) -> None:
    # Given two workers, which count while the first half is replayed
    running = stage.workers_running(place.store, place.results, place.log, processes=2)
    with open_store(place.store) as store, running as supervisor:
        watched = Processes(supervisor=supervisor)
        Admin(store).create_topic(app.TOPIC, QUEUES)
        stage.wait_for_workers(store, watched, 2)
        replay(place.store, islice(slice_of_flights, SLICE // 2))

        # When one of them is killed and the other half is replayed
        victim = stage.choose_victim(store)
        takeover = stage.kill(store, victim, watched)
        replay(place.store, islice(slice_of_flights, SLICE // 2, None))
        wait_for_count(store, watched, SLICE)

        # Then its queues have other owners, and nothing is left
        owners = stage.queues_by_owner(store)
        assert victim.pid not in {pid for pid, _ in owners.values()} | set(takeover.heirs)
        assert all(owners[queue][1] > epoch for queue, epoch in victim.epochs.items())
        assert stage.lag(store) == 0
    assert supervisor.returncode == 0

    # And every flight was counted once by each group
    verdict = report.check(stored(place.results), computed(slice_of_flights))
    assert verdict.problems == ()
    assert verdict.line == f"{SLICE} of {SLICE} flights, each counted once per group"
    by_worker = report.counted_by_worker(place.results)
    assert sum(counts["delays"] for counts in by_worker.values()) == SLICE


def test_a_flight_that_is_delivered_again_counts_once(
    place: Place, slice_of_flights: list[Flight], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given handlers that fail once for each flight, after they have counted it
    monkeypatch.setenv("FLIGHTS_RESULTS", str(place.results))
    app.results.cache_clear()
    failed: set[str] = set()

    def fail_once(function: Callable[[object], None]) -> Callable[[object], None]:
        def handle(message: object) -> None:
            function(message)
            name = f"{function.__name__} {message.message_id}"  # type: ignore[attr-defined]
            if name not in failed:
                failed.add(name)
                raise RuntimeError("counted, and not acknowledged")

        return handle

    soon = RetryPolicy(delay_levels=(1,))
    handlers = [replace(each, function=fail_once(each.function), retry=soon) for each in app.app.handlers]

    # When they have handled all
    replay(place.store, slice_of_flights[:20])
    with open_store(place.store) as store:
        consumer = PushConsumer(store, handlers)
        consumer.start()
        wait_for_count(store, Processes(), 20)
        wait_for(lambda: report.redeliveries(place.results) == 40, "all come back after a second")
        consumer.close()

    for group in GROUPS:
        app.results(group).close()
    app.results.cache_clear()

    # Then each was delivered twice, and counts once
    assert report.redeliveries(place.results) == 40
    assert report.check(stored(place.results), computed(slice_of_flights[:20])).problems == ()


@pytest.mark.slow
def test_the_demo_does_everything_from_nothing_and_says_so(tmp_path: Path) -> None:
    output = tmp_path / "demo-output"
    shown = run("examples.flights", "--flights", "1000", "--output", str(output))
    assert shown.returncode == 0, shown.stdout + shown.stderr
    lines = shown.stdout.splitlines()
    assert "1000 of 1000 flights, each counted once per group" in lines
    assert f"chart: {output / 'delays.png'}" in lines
    assert (output / "delays.png").read_bytes().startswith(b"\x89PNG")
    for said in ("kill -9 ", "taken over", "killed on purpose", "redeliveries"):
        assert said in shown.stdout

    # And when a row is lost later, the report notices and its exit code says so
    lose_a_row(output / "results")
    shown = run("examples.flights.outcome.report", "--flights", "1000", "--results", str(output / "results"))
    assert shown.returncode == 1
    assert "999 of 1000 flights, each counted once per group" in shown.stdout.splitlines()


def test_the_demo_leaves_a_store_alone_that_workers_use(place: Place, tmp_path: Path) -> None:
    running = stage.workers_running(place.store, place.results, place.log, processes=2)
    with open_store(place.store) as store, running as supervisor:
        Admin(store).create_topic(app.TOPIC, QUEUES)
        stage.wait_for_workers(store, Processes(supervisor=supervisor), 2)
        shown = run("examples.flights", "--flights", "1000", "--output", str(tmp_path))
        assert shown.returncode == 1
        assert f"stop their supervisors first, with kill {supervisor.pid}" in shown.stdout
        assert supervisor.poll() is None


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RMQ_", "FLIGHTS_"))}
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=stage.REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def lose_a_row(results: Path) -> None:
    path = next(path for path in results.glob("minutes-*.sqlite"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM minutes WHERE name = (SELECT min(name) FROM minutes)")
