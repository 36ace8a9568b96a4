"""Layouts are declared once: docstrings show the declaration, and shared words do not straddle a boundary."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from itertools import pairwise

import pytest

from rmqclient.store import layout
from rmqclient.store.runtime import shared_state

SHOWN = {
    "rmqclient.store.clock": ("CLOCK",),
    "rmqclient.store.log.record": ("RECORD_HEADER", "BLANK_RECORD"),
    "rmqclient.store.log.consume_queue": ("CONSUME_QUEUE_ENTRY",),
    "rmqclient.store.log.index_file": ("INDEX_HEADER", "INDEX_ENTRY"),
    "rmqclient.store.settings.checkpoint": ("CHECKPOINT", "LOW_WATER"),
    "rmqclient.store.waiting.timer_restore": ("TIMER_SNAPSHOT",),
}
"""Which layouts the docstring of a module shows."""

CACHE_LINE = 64
MUTEX = 48

TABLE_STARTS = [
    layout.ARRIVAL_LANES_AT,
    layout.QUEUE_TABLE_AT,
    layout.GROUP_QUEUE_TABLE_AT,
    layout.MEMBER_TABLE_AT,
    layout.WORKER_TABLE_AT,
    layout.RUNNING_TABLE_AT,
    layout.SCHEDULE_TABLE_AT,
    layout.HANDLING_TABLE_AT,
    layout.TIMER_AT,
]


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in SHOWN.items() for name in names])
def test_the_docstring_of_a_module_shows_the_declared_layout(module: str, name: str) -> None:
    declared: layout.Layout = getattr(layout, name)
    docstring = inspect.getdoc(importlib.import_module(module)) or ""
    table = textwrap.indent(declared.table(), "    ")
    assert table in docstring, f"{module} must show {name} as a block that is indented by four spaces:\n\n{table}"


@pytest.mark.parametrize("table", layout.RUNTIME_TABLES.values(), ids=layout.RUNTIME_TABLES)
def test_runtime_fields_are_aligned_so_that_no_process_sees_half_of_one(table: layout.Layout) -> None:
    assert [field.name for field in table.fields if table.at[field.name] % alignment(field)] == []


@pytest.mark.parametrize("name", [name for name in layout.RUNTIME_TABLES if name != "header"])
def test_a_slot_fills_whole_cache_lines(name: str) -> None:
    assert layout.RUNTIME_TABLES[name].size % CACHE_LINE == 0


def test_tables_of_the_runtime_file_start_on_cache_lines_and_do_not_overlap() -> None:
    sizes = [
        layout.ARRIVAL_LANES * layout.ARRIVAL_LANE_STRIDE,
        layout.QUEUE_SLOTS * layout.QUEUE_SLOT.size,
        layout.GROUP_QUEUE_SLOTS * layout.GROUP_QUEUE_SLOT.size,
        layout.MEMBER_SLOTS * layout.MEMBER_SLOT.size,
        layout.WORKER_SLOTS * layout.WORKER_SLOT.size,
        layout.RUNNING_SLOTS * layout.RUNNING_SLOT.size,
        layout.SCHEDULE_SLOTS * layout.SCHEDULE_SLOT.size,
        layout.HANDLING_SLOTS * layout.HANDLING_SLOT.size,
        layout.TIMER_HEADER.size + layout.TIMER_BITS // 8,
    ]
    spans = [(0, layout.RUNTIME_HEADER.size)]
    spans += [(start, start + size) for start, size in zip(TABLE_STARTS, sizes, strict=True)]
    spans.append((layout.RUNTIME_SIZE, layout.RUNTIME_SIZE))
    assert all(start % CACHE_LINE == 0 for start, _ in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize("name", layout.RUNTIME_TABLES)
def test_no_two_fields_of_a_runtime_table_have_the_same_name(name: str) -> None:
    table = layout.RUNTIME_TABLES[name]
    assert len(table.at) == len(table.fields)


def test_the_docstring_of_the_runtime_file_says_of_each_field_who_may_touch_it() -> None:
    told: dict[str, set[str]] = {name: set() for name in layout.RUNTIME_TABLES}
    for entry in first_column(inspect.getdoc(shared_state) or ""):
        table, _, fields = entry.rpartition(": ")
        for field in fields.split(", "):
            assert field not in told[table or "header"], f"{entry!r} is told twice"
            told[table or "header"].add(field)
    for name, table_layout in layout.RUNTIME_TABLES.items():
        declared = {field for field in table_layout.at if not (field.startswith("_pad") or field.endswith("mutex"))}
        assert told[name] - {"all"} <= declared, name
        assert "all" in told[name] or told[name] == declared, name


def first_column(docstring: str) -> list[str]:
    """Return the entries of the first column of a table; what stands across the columns breaks it."""
    _, head, body, _ = re.split(r"^(?=={3,} )", docstring, flags=re.MULTILINE)
    width, second, _ = (len(rule) for rule in head.splitlines()[0].split())
    entries: list[str] = []
    for line in body.splitlines()[1:]:
        gaps = line[width : width + 2] + line[width + 2 + second : width + 4 + second]
        assert not gaps.strip(), f"a column is too narrow for {line!r}"
        named = line[:width].strip()
        if entries and entries[-1].endswith(","):
            entries[-1] += f" {named}"
        elif named:
            entries.append(named)
    return entries


def alignment(field: layout.Field) -> int:
    """Return what the byte offset of a field must be a multiple of; 1 for text and padding."""
    if field.name.endswith("mutex"):
        assert field.size in (CACHE_LINE, MUTEX), "a mutex has a cache line of its own, but for words behind it"
        return CACHE_LINE
    return field.size if field.code in "bBhHiIqQ" else 1
