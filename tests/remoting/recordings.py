"""The recorded frames of ``tests/remoting/recorded``, as objects."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "recorded"
BUNDLES = sorted(path.name.removesuffix(".jsonl.xz") for path in FOLDER.glob("*.jsonl.xz"))


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """One frame as it passed the proxy. ``request_code`` is also known for an answer, unless its request was unseen."""

    session: str
    connection: int
    peer: str
    is_from_client: bool
    is_response: bool
    request_code: int | None
    header: dict[str, Any]
    raw: bytes
    time_s: float
    """Unix time."""
    body: bytes | None
    """None if it is longer than 4 KiB: then it was not recorded, and ``raw`` has as many zeros instead."""


@cache
def recorded_frames(bundle: str) -> tuple[RecordedFrame, ...]:
    """Return the frames of one bundle in the order of the recording, without those that were no frames."""
    return tuple(_frame_of(line) for line in _lines_of(bundle) if "header" in line and "error" not in line)


@dataclass(frozen=True, slots=True)
class Closed:
    """The client closed a connection."""

    session: str
    connection: int


@cache
def recorded_sessions() -> dict[str, tuple[RecordedFrame | Closed, ...]]:
    """Return what happened in each session, by its name: its frames, and the ends of connections by their clients."""
    found: dict[str, list[RecordedFrame | Closed]] = {}
    for line in (line for bundle in BUNDLES for line in _lines_of(bundle) if "error" not in line):
        events = found.setdefault(line["session"], [])
        if isinstance(line.get("header"), dict):
            events.append(_frame_of(line))
        elif line.get("event") == "close" and line["by"] == "c":
            events.append(Closed(line["session"], line["conn"]))
    return {session: tuple(events) for session, events in found.items()}


@cache
def recorded_damage() -> tuple[bytes, ...]:
    """Return what a probe sent that is no frame."""
    return tuple(bytes.fromhex(line["raw_hex"]) for bundle in BUNDLES for line in _lines_of(bundle) if "error" in line)


def _lines_of(bundle: str) -> list[dict[str, Any]]:
    text = lzma.decompress((FOLDER / f"{bundle}.jsonl.xz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def _frame_of(line: dict[str, Any]) -> RecordedFrame:
    raw, length = bytes.fromhex(line["raw_hex"]), line["body_len"]
    is_whole = "body_sha256" not in line
    is_response = line["kind"] == "response"
    return RecordedFrame(
        session=line["session"],
        connection=line["conn"],
        peer=line["peer"],
        is_from_client=line["dir"] == "c2s",
        is_response=is_response,
        request_code=line.get("req_code") if is_response else line["code"],
        header=line["header"],
        raw=raw if is_whole else raw + bytes(length),
        time_s=line["t"],
        body=raw[len(raw) - length :] if is_whole else None,
    )
