"""The pipeline of the flights example: the plain computation, the check, the chart, and Spark over some days."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from examples.flights.dataset import flights
from examples.flights.outcome import tally
from examples.flights.outcome.tally import Delays
from examples.flights.stage import REPOSITORY
from examples.flights.weather import chart as weather_chart
from examples.flights.weather.__main__ import FEWEST_FLIGHTS, faults, main
from examples.flights.weather.delays import DRY, UNKNOWN, WET, WeatherDelays, computed, total
from tests.support.java import QUICK_JAVA, why_no_spark

NAMES = {"EWR": "Newark Liberty Intl", "JFK": "John F Kennedy Intl", "LGA": "La Guardia"}


@pytest.fixture(scope="module")
def expected() -> WeatherDelays:
    return computed(FEWEST_FLIGHTS)


# --- the plain computation ------------------------------------------------------------------------


def test_the_plain_computation_adds_up_to_that_of_the_main_example(expected: WeatherDelays) -> None:
    over_weather: defaultdict[tuple[str, int], Delays] = defaultdict(Delays)
    for (airport, hour, _), cell in expected.items():
        over_weather[airport, hour].add(cell.flights, cell.departed, cell.minutes)
    main_example = tally.computed(flights(FEWEST_FLIGHTS)).delays_by(lambda origin, _carrier, hour: (origin, hour))
    assert over_weather == {(NAMES[origin], hour): cell for (origin, hour), cell in main_example.items()}


def test_every_flight_has_a_weather_and_most_days_are_dry(expected: WeatherDelays) -> None:
    by_weather = {weather: total(expected, weather=weather).flights for weather in (DRY, WET, UNKNOWN)}
    assert sum(by_weather.values()) == total(expected).flights == FEWEST_FLIGHTS
    assert by_weather[DRY] > by_weather[WET] > 0


# --- the check ------------------------------------------------------------------------------------


def add_a_minute(found: WeatherDelays) -> None:
    found["La Guardia", 8, DRY].minutes += 1


def lose_a_cell(found: WeatherDelays) -> None:
    del found["La Guardia", 8, DRY]


def move_a_flight_by_an_hour(found: WeatherDelays) -> None:
    found["La Guardia", 8, DRY].flights -= 1
    found["La Guardia", 9, DRY].flights += 1


@pytest.mark.parametrize(
    ("spoil", "differ"),
    [(add_a_minute, 1), (lose_a_cell, 1), (move_a_flight_by_an_hour, 2)],
    ids=["a minute more", "a cell less", "a flight an hour later"],
)
def test_the_check_notices(expected: WeatherDelays, spoil: Callable[[WeatherDelays], None], differ: int) -> None:
    assert faults({"stream": expected, "archive": deepcopy(expected)}, expected) == []
    spoiled = deepcopy(expected)
    spoil(spoiled)
    (fault,) = faults({"stream": expected, "archive": spoiled}, expected)
    assert fault.startswith(
        f"archive: {differ} of {len(expected)} differ from those of pandas, such as La Guardia, 8, dry"
    )


# --- the chart ------------------------------------------------------------------------------------


def test_the_chart_says_what_it_shows(tmp_path: Path, expected: WeatherDelays) -> None:
    assert weather_chart.draw(expected, tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")
    dry, wet = (total(expected, weather=weather).mean for weather in (DRY, WET))
    assert f"{wet:.0f} minutes late on average, in dry weather {dry:.0f} minutes" in weather_chart.finding(expected)


def test_a_chart_without_rain_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rain or snow"):
        weather_chart.draw(computed(1_000), tmp_path / "delays.png")


# --- the whole of it ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spark
def test_spark_finds_in_the_store_what_pandas_finds_in_the_files(tmp_path: Path) -> None:
    if reason := why_no_spark():
        pytest.skip(reason)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RMQ_", "FLIGHTS_"))}
    environment["PYSPARK_SUBMIT_ARGS"] = f"--driver-java-options '{QUICK_JAVA}' pyspark-shell"
    command = [
        sys.executable,
        "-m",
        "examples.flights.weather",
        "--flights",
        str(FEWEST_FLIGHTS),
        "--processes",
        "1",
    ]
    done = subprocess.run(
        [*command, "--output", str(tmp_path)],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{FEWEST_FLIGHTS} of {FEWEST_FLIGHTS} flights: all " in done.stdout
    assert f"chart: {tmp_path / 'delays.png'}" in done.stdout.splitlines()
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")
    directories = {file.parent.relative_to(tmp_path / "archive") for file in tmp_path.glob("archive/*/*/*.parquet")}
    assert directories == {Path(f"origin={origin}/month=2013-01") for origin in NAMES}
    assert done.stderr == ""


def test_without_java_the_pipeline_says_in_one_line_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("rmqclient.spark.java.importlib.util.find_spec", lambda _name: None)
    spark_session = import_module("rmqclient.spark.session")  # rmqclient.spark has a function of that name
    monkeypatch.setattr(spark_session, "check_installed", lambda: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # pytest keeps its own
    main(["--output", str(tmp_path / "output")], standalone_mode=False)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("skipped: Spark needs Java 17 or newer")
    assert "apt install openjdk-17-jre-headless" in line
