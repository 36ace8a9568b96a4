"""The recording of the demonstration shows lines when they came, and all of them to a reader who wants no motion."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from tests.docs.recording import PICTURE, Line, picture, recorded, shortened

LINES = [Line(1.0, " 1.0 s  2 workers are ready"), Line(30.0, "30.0 s  kill -9 17, the worker of queues <0>")]


def test_lines_appear_in_their_order_within_some_seconds() -> None:
    drawn = ElementTree.fromstring(picture("make demo", LINES))
    texts = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["$ make demo", *(line.text for line in LINES)]
    style = drawn.find("{http://www.w3.org/2000/svg}style")
    assert style is not None
    assert style.text is not None
    appears = [float(percent) for percent in re.findall(r"0%,([\d.]+)%\{opacity:0\}", style.text)]
    assert appears == sorted(appears)
    assert appears[-1] < 100
    assert "prefers-reduced-motion:reduce){text{animation:none!important}" in style.text


def test_most_lines_of_progress_and_the_first_tables_are_left_out() -> None:
    progress = [Line(float(second), f"{second:>2}.0 s  sent {second} (7/s)") for second in range(60)]
    table = [Line(61.0, "Flights by carrier"), Line(61.0, ""), Line(61.1, "Counts by worker process")]
    kept = shortened([*progress, *LINES, *table])
    assert kept[-3:] == [*LINES, table[-1]]
    assert len(kept) <= 6 + 3
    assert "/s" not in kept[0].text


def test_a_run_that_fails_is_no_recording() -> None:
    assert [line.text for line in recorded([sys.executable, "-c", "print('a'); print('b')"])] == ["a", "b"]
    with pytest.raises(subprocess.CalledProcessError):
        recorded([sys.executable, "-c", "print('a'); raise SystemExit(1)"])


def test_the_picture_of_the_readme_is_a_recording_of_a_whole_run() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert len(text) < 200_000
    assert "kill -9" in text
    assert re.search(r"(\d+) of \1 flights|s in all", text)
