"""The page of the profiles: of each work the parts of the system, then the functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.machine import Machine
from benchmarks.profiling.recording import Profile
from benchmarks.report import markdown_table

_HEAD = """\
# Profiles

Written by `python -m benchmarks.profiling`, never by hand: what `perf record` sees of the work behind the
[targets](targets.md) and those [beside the peers](peers.md#targets), with bodies of 100 B. The samples are of all
processes of a work, with their start and their end; time asleep counts nothing. *Our kernel* is the compiled part of
the store; *the interpreter* is CPython, with our modules of Python.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """One run."""

    date: str
    commit: str
    machine: Machine
    profiles: Sequence[Profile]


def page(found: Profiles) -> str:
    """Return the Markdown page."""
    where = f"{found.machine}; commit {found.commit}, {found.date}."
    return "\n".join([_HEAD, where, *map(_section, found.profiles), ""])


def _section(profile: Profile) -> str:
    parts = sorted(profile.parts.items(), key=lambda each: -each[1])
    shares = ", ".join(f"{name} {percent:.0f} %" for name, percent in parts)
    rows = [[f"`{each.name}`", each.part, f"{each.percent:.1f} %"] for each in profile.functions]
    table = markdown_table(["", "part", "samples"], rows)
    return "\n".join([f"\n## {profile.title}", "", f"{profile.count:,} messages: {shares}.", "", table])
