"""Imports go one way, every package is published, and docs/architecture.md is a map of what is there."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAY_IMPORT: dict[str, set[str]] = {"store": set(), "rmqclient": {"store"}, "workers": {"rmqclient"}}

LEVELS: tuple[tuple[str, ...], ...] = (
    ("errors", "layout", "bodies", "config", "crash_points", "file_system", "message_queue", "_kernel"),
    ("record", "inner_batch", "mapped_file", "cold_reads", "file_lock", "shared_state", "config_file"),
    ("file_queue", "compacted_file", "topic_table", "group_table", "disk"),
    ("commit_log", "consume_queue", "index_file", "checkpoint", "releaser"),
    (
        "dispatch",
        "flush",
        "log_scan",
        "recovery",
        "preparer",
        "housekeeper",
        "appending",
        "reading",
        "query",
        "compaction",
        "retention",
        "schedule",
        "timer",
        "timer_bits",
        "timer_restore",
        "half_messages",
        "once",
        "transaction",
        "shape",
        "staged",
        "write_buffer",
    ),
    ("opening", "compacted_checks", "verify", "dump", "broker_conf", "view"),
    ("message_store",),
    ("repair", "__main__"),
)
"""The files of the store. One imports from the levels above its own."""

SAME_LEVEL: dict[str, set[str]] = {
    "_kernel": {"bodies", "errors"},
    "bodies": {"errors"},
    "cold_reads": {"mapped_file"},
    "config": {"bodies", "layout"},
    "config_file": {"mapped_file"},
    "crash_points": {"_kernel"},
    "file_system": {"errors"},
    "log_scan": {"dispatch", "shape"},
    "reading": {"dispatch", "log_scan", "recovery", "shape"},
    "recovery": {"appending", "dispatch", "log_scan", "shape"},
    "once": {"query", "retention"},
    "retention": {"compaction"},
    "schedule": {"query"},
    "timer": {"schedule", "timer_bits", "timer_restore"},
    "timer_bits": {"appending"},
    "timer_restore": {"timer_bits"},
    "topic_table": {"compacted_file"},
    "verify": {"compacted_checks"},
    "transaction": {"half_messages", "schedule"},
    "shared_state": {"mapped_file"},
    "__main__": {"repair"},
}
"""What a file may import besides, from its own level."""

LEVEL_OF = {module: number for number, modules in enumerate(LEVELS) for module in modules}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    for path in modules_of(package):
        for name in imported_names(path):
            top, *rest = name.split(".")
            if top in MAY_IMPORT and top != package:
                assert top in MAY_IMPORT[package], f"{shown(path)}: {package} must not import {name}"
                assert not any(is_private(part) for part in rest), f"{shown(path)}: {name} is private to {top}"


def test_no_package_imports_the_tests_examples_or_benchmarks() -> None:
    for package in MAY_IMPORT:
        for path in modules_of(package):
            outside = {name.split(".")[0] for name in imported_names(path)} & {"tests", "examples", "benchmarks"}
            assert not outside, f"{shown(path)} imports {outside}"


def test_every_file_of_the_store_has_a_level() -> None:
    assert {path.stem for path in modules_of("store") if path.stem != "__init__"} == set(LEVEL_OF)


@pytest.mark.parametrize("module", LEVEL_OF)
def test_a_file_of_the_store_imports_only_from_levels_above_it(module: str) -> None:
    for used in store_imports(module):
        assert used in LEVEL_OF, f"store/{module} imports store.{used}, which is no file with a level"
        if used not in SAME_LEVEL.get(module, set()):
            assert LEVEL_OF[used] < LEVEL_OF[module], f"store/{module} must not import store.{used}"


def test_every_exception_inside_a_level_is_used_and_stays_inside_it() -> None:
    for module, others in SAME_LEVEL.items():
        assert {LEVEL_OF[other] for other in others} == {LEVEL_OF[module]}
        assert others <= store_imports(module), f"store/{module} no longer imports {others - store_imports(module)}"


def test_imports_inside_the_store_form_no_circle() -> None:
    modules = [path.stem for path in modules_of("store") if path.stem != "__init__"]
    TopologicalSorter({module: store_imports(module) for module in modules}).prepare()


def test_every_package_on_disk_is_published() -> None:
    published = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    on_disk = {shown(path.parent).replace("/", ".") for top in MAY_IMPORT for path in (ROOT / top).rglob("__init__.py")}
    assert set(published) == on_disk


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_every_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_the_architecture_page_names_every_module() -> None:
    modules = {shown(path) for package in MAY_IMPORT for path in modules_of(package) if path.stem != "__init__"}
    assert modules - modules_on_the_architecture_page() == set()


def test_every_module_on_the_architecture_page_exists() -> None:
    assert {name for name in modules_on_the_architecture_page() if not (ROOT / name).is_file()} == set()


def modules_on_the_architecture_page() -> set[str]:
    """Return the modules that docs/architecture.md names, each by its path from the top: ``store/record.py``."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return set(re.findall(rf"\b(?:{'|'.join(MAY_IMPORT)})(?:/\w+)+\.pyx?\b", page))


def modules_of(package: str) -> list[Path]:
    return sorted(path for pattern in ("*.py", "*.pyx") for path in (ROOT / package).rglob(pattern))


def store_imports(module: str) -> set[str]:
    """Return the files of the store that one of them imports; "__init__" stands for the package itself."""
    path = next(path for suffix in ("py", "pyx") if (path := ROOT / "store" / f"{module}.{suffix}").exists())
    parts = [name.split(".") for name in imported_names(path)]
    return {name[1] if len(name) > 1 else "__init__" for name in parts if name[0] == "store"}


def imported_names(path: Path) -> set[str]:
    """Return everything a file imports, in full: ``from store import layout`` gives ``store.layout``."""
    text = path.read_text(encoding="utf-8")
    return set(cython_imports(text) if path.suffix == ".pyx" else python_imports(path, text))


def python_imports(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{shown(path)}, line {node.lineno}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def cython_imports(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if found := re.match(r"\s*c?import\s+([\w.]+)", line):
            yield found[1]
        elif found := re.match(r"\s*from\s+([\w.]+)\s+c?import\s+\(?([\w, ]*)", line):
            names = re.findall(r"\w+", found[2])
            yield from (f"{found[1]}.{name}" for name in names or [""])


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
