"""``python -m tests.docs.recording``: what `make demo` prints, as a picture that moves: ``docs/images/demo.svg``.

A line appears when the run printed it, faster by a factor so that the whole fits into some seconds, and stays until the
picture begins again. Without motion (``prefers-reduced-motion``) all lines are there. Most lines of progress are left
out, and so are rates, which say more of the machine that records, and all tables but the last.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from tests.docs.page import REPOSITORY

PICTURE = REPOSITORY / "docs" / "images" / "demo.svg"
_LONGEST_S = 10.0
_HELD_S = 5.0
_MOST_PROGRESS = 6
_PROGRESS = re.compile(r"^ *[\d.]+ s  sent ")
_RATE = re.compile(r" \([\d,]+/s\)")
_FIRST_TABLE, _LAST_TABLE = "Flights by carrier", "Counts by worker process"
_COLUMNS, _LINE, _CHARACTER, _EDGE = 96, 19, 8.0, 18

_STYLE = (
    "rect{fill:#f6f8fa;stroke:#d0d7de}text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "fill:#24292f;white-space:pre}.k{fill:#a40e26;font-weight:bold}.p{fill:#57606a}"
    "@media(prefers-color-scheme:dark){rect{fill:#0d1117;stroke:#30363d}text{fill:#e6edf3}.k{fill:#ff9492}"
    ".p{fill:#9198a1}}@media(prefers-reduced-motion:reduce){text{animation:none!important}}"
)


class Line(NamedTuple):
    """A line that was printed, and when, in seconds since the start."""

    at_s: float
    text: str


def recorded(command: Sequence[str]) -> list[Line]:
    """Run a command and return its lines. Raises CalledProcessError if it fails."""
    began, lines = time.monotonic(), list[Line]()
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            lines.append(Line(time.monotonic() - began, text.rstrip()))
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return lines


def shortened(lines: Sequence[Line]) -> list[Line]:
    """Leave out most lines of progress, evenly, and the tables before the last one."""
    progress = [line for line in lines if _PROGRESS.match(line.text)]
    step = max(1, -(-len(progress) // _MOST_PROGRESS))
    left_out, is_table = set(progress) - set(progress[::step]), False
    for line in lines:
        is_table = line.text.startswith(_FIRST_TABLE) or (is_table and not line.text.startswith(_LAST_TABLE))
        if is_table:
            left_out.add(line)
    return [Line(line.at_s, _RATE.sub("", line.text)) for line in lines if line not in left_out]


def picture(title: str, lines: Sequence[Line]) -> str:
    """Return the SVG of lines in their order; a line that is too long for the picture is cut."""
    shown = [Line(0.0, f"$ {title}"), *lines]
    faster = max(1.0, shown[-1].at_s / _LONGEST_S)
    whole_s = shown[-1].at_s / faster + _HELD_S
    styles, texts = [_STYLE], list[str]()
    for number, line in enumerate(shown):
        percent = 100 * line.at_s / faster / whole_s
        styles.append(f"@keyframes l{number}{{0%,{percent:.2f}%{{opacity:0}}{percent + 0.01:.2f}%,100%{{opacity:1}}}}")
        kind = "k" if "kill -9" in line.text else "p" if _PROGRESS.match(line.text) else "n"
        texts.append(
            f'<text class="{kind}" x="{_EDGE}" y="{_EDGE + _LINE * (number + 1) - 5}" '
            f'style="animation:l{number} {whole_s:.1f}s infinite">{escape(line.text[:_COLUMNS])}</text>'
        )
    width, height = _COLUMNS * _CHARACTER + 2 * _EDGE, _LINE * len(shown) + 2 * _EDGE
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{''.join(styles)}</style>",
        f'<rect x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="8"/>',
        *texts,
        "</svg>\n",
    ])  # fmt: skip


def main() -> None:
    """Record the demonstration; arguments are those of ``python -m examples.flights``."""
    with tempfile.TemporaryDirectory() as output:
        lines = recorded([sys.executable, "-u", "-m", "examples.flights", "--output", output, *sys.argv[1:]])
    title = " ".join(["python -m examples.flights", *sys.argv[1:]]) if sys.argv[1:] else "make demo"
    PICTURE.write_text(picture(title, shortened(lines)), encoding="utf-8")


if __name__ == "__main__":
    main()
