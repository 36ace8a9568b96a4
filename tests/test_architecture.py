"""Rooms: what lies in a folder, what it may import, and that no import goes in a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAY_IMPORT: dict[str, set[str]] = {
    "store": set(),
    "remoting": {"store"},
    "rmqclient": {"store", "remoting"},
    "replication": {"store", "remoting", "rmqclient"},
    "broker": {"store", "remoting", "rmqclient", "replication"},
    "workers": {"rmqclient", "broker", "replication"},
}
"""The packages, each with the packages below it. ``rmqclient`` is what is in none of the others."""

LINKED = {"store", "workers"}
"""Folders at the top that are installed under ``rmqclient``."""

FOLDERS = {package: ROOT / package if package in LINKED else ROOT / "rmqclient" / package for package in MAY_IMPORT} | {
    "rmqclient": ROOT / "rmqclient"
}

ALSO_IMPORT = {
    "workers/commands/store.py": {"store"},
    "workers/commands/doctor.py": {"store"},
    "workers/commands/completion.py": {"store"},
    "workers/probe.py": {"store"},
    "workers/commands/advice.py": {"store"},
    "workers/commands/worker.py": {"store"},
    "workers/commands/frame.py": {"store"},
    "workers/processes/signals.py": {"store"},
    "rmqclient/frameworks/django/management/commands/rmq.py": {"workers"},
}
"""Files that look at a directory of a store as it lies there, and ask the store itself for that; what a
forked child must leave to a worker, by the one hook into forks; and the command ``manage.py rmq``, which is the command
``rmq`` of a project."""

SENDING = ("backend", "calling", "local", "metrics", "sending", "tables", "tracing")
"""Folders of the client that a process loads which only sends, or reads."""

SHARED_MEMORY = {"layout", "shared_state", "file_lock", "group_table"}
"""Modules of the store that say how processes share it. Of the client, only the local backend may know them."""

HOST_TIME: dict[str, str] = {
    "store/clock.py": "it is the seam",
    "store/files/": "a lock of another process",
    "store/upkeep/": "a disk, and how long a pass took",
    "store/waiting/transaction.py": "how long a round of checks may take",
    "store/threads/watched_calls.py": "how long a call has run",
    "store/observe/": "a store from outside, by somebody's watch",
    "rmqclient/cluster/": "the network, and brokers with clocks of their own",
    "rmqclient/spark/": "jobs of Spark",
    "rmqclient/archive/": "how fresh a view is",
    "rmqclient/dashboard/": "a store from outside, by somebody's watch",
    "rmqclient/health/": "a store from outside, by somebody's watch",
    "rmqclient/consuming/allocator.py": "members that come and go",
    "rmqclient/consuming/rebalance.py": "leases",
    "rmqclient/consuming/strain.py": "how long calls have kept the threads of a member",
    "rmqclient/consuming/push_consumer.py": "the end of threads",
    "rmqclient/delivery/delivery.py": "the end of threads",
    "rmqclient/delivery/calls.py": "a thread that is kept by a call",
    "rmqclient/delivery/suspects.py": "calls that run beside each other",
    "rmqclient/delivery/turns.py": "the same",
    "rmqclient/failures/dead_letters.py": "the pace of a replay",
    "rmqclient/duration.py": "times that a person types",
    "rmqclient/tracing/": "traces that other hosts read, and their pace",
    "rmqclient/testing/": "the start and the end of processes",
    "rmqclient/replication/": "the network",
    "rmqclient/broker/": "connections and remote members",
    "workers/": "processes",
}
"""Where the host's time is read beside :mod:`rmqclient.store.clock`, and of what."""


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    for path in sources_of(package):
        for name in imported_names(path):
            owner = owner_of(name)
            if owner not in {None, package}:
                allowed = MAY_IMPORT[package] | ALSO_IMPORT.get(shown(path), set())
                assert owner in allowed, f"{shown(path)}: {package} must not import {name}"
                private = [part for part in name.split(".") if is_private(part)]
                assert not private, f"{shown(path)}: {name} is private to {owner}"


def test_of_the_client_only_the_local_backend_knows_how_the_store_is_shared() -> None:
    for path in sources_of("rmqclient"):
        if not shown(path).startswith("rmqclient/local/"):
            known = {name for name in imported_names(path) if SHARED_MEMORY.intersection(name.split("."))}
            assert not known, f"{shown(path)} imports {known}"


def test_what_a_sending_process_loads_has_native_threads_also_where_gevent_has_patched_them() -> None:
    folders = ["store/", *(f"rmqclient/{name}/" for name in SENDING)]
    for path in every_source():
        is_stub = path.suffix == ".pyi"  # it says what a lock is like, and makes none
        if shown(path).startswith(tuple(folders)) and shown(path) != "store/native_threads.py" and not is_stub:
            green = {name for name in imported_names(path) if name.split(".")[0] in {"threading", "queue"}}
            assert not green, f"{shown(path)} imports {green}: take it from rmqclient.store.native_threads"


def test_nothing_is_imported_by_the_short_name_of_a_folder() -> None:
    for path in every_source():
        short = {name for name in imported_names(path) if name.split(".")[0] in LINKED}
        assert not short, f"{shown(path)} imports {short}: the installed name is rmqclient.store, and so on"


def test_no_package_imports_the_tests_examples_or_benchmarks() -> None:
    for package in MAY_IMPORT:
        for path in sources_of(package):
            outside = {name.split(".")[0] for name in imported_names(path)} & {"tests", "examples", "benchmarks"}
            assert not outside, f"{shown(path)} imports {outside}"


def test_imports_between_folders_form_no_circle() -> None:
    rooms: dict[str, set[str]] = {}
    for room, used in imports_between(room_of).items():
        rooms[room] = used - {room}
    no_circle(rooms)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_between_files_form_no_circle(package: str) -> None:
    files = imports_between(shown)
    within = {shown(path) for path in sources_of(package)}
    no_circle({file: used - {file} for file, used in files.items() if file in within})


def test_only_the_dashboard_imports_what_makes_pages_and_only_its_command_imports_the_dashboard() -> None:
    for package in MAY_IMPORT:
        for path in sources_of(package):
            if shown(path).startswith("rmqclient/dashboard/"):
                continue
            names = imported_names(path)
            web = {name for name in names if name.split(".")[0] in {"starlette", "uvicorn", "jinja2", "markupsafe"}}
            assert not web, f"{shown(path)} imports {web}"
            if shown(path) != "workers/commands/dashboard.py":
                ours = {name for name in names if name.startswith("rmqclient.dashboard")}
                assert not ours, f"{shown(path)} imports {ours}"


def test_time_that_a_test_may_move_is_read_in_one_place() -> None:
    read = re.compile(
        r"\btime\.(time|time_ns|monotonic|monotonic_ns|clock_gettime|clock_gettime_ns)\b|\bdatetime\.now\("
    )
    reading = {shown(path) for package in MAY_IMPORT for path in sources_of(package) if has_code(path, read)}
    unknown = {name for name in reading if not any(name.startswith(known) for known in HOST_TIME)}
    assert not unknown, f"{unknown} read the host's time: ask rmqclient.store.clock, or say in HOST_TIME of what"
    unused = {known for known in HOST_TIME if not any(name.startswith(known) for name in reading)}
    assert not unused, f"{unused} do not read the host's time any more"


def test_of_brokers_no_message_has_a_time_that_is_not_the_stores() -> None:
    read = re.compile(r"\btime\.time(_ns)?\b")
    wall = {shown(path) for path in sources_of("broker") if has_code(path, read)}
    assert wall == {"rmqclient/broker/administration/connections.py"}, "only connections have the host's time of day"


def test_one_file_hooks_into_forks() -> None:
    hooks = [
        shown(path)
        for package in MAY_IMPORT
        for path in sources_of(package)
        if "register_at_fork" in path.read_text(encoding="utf-8")
    ]
    assert hooks == ["store/files/fork.py"], "register handles with rmqclient.store.fork"


def test_every_package_says_what_lives_there() -> None:
    for package in MAY_IMPORT:
        for path in FOLDERS[package].rglob("__init__.py"):
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{shown(path)} says nothing"


@pytest.mark.parametrize("link", sorted(LINKED))
def test_a_folder_at_the_top_is_linked_into_the_package(link: str) -> None:
    assert (ROOT / "rmqclient" / link).resolve() == ROOT / link


def no_circle(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"imports in a circle: {' <- '.join(error.args[1])}")


@cache
def imports_between(unit_of: object) -> dict[str, set[str]]:
    """Return which units of the packages import which: a unit is what ``unit_of`` says of a path."""
    assert callable(unit_of)
    found: dict[str, set[str]] = {}
    for package in MAY_IMPORT:
        for path in sources_of(package):
            used = {file for name in imported_names(path) if (file := file_of(name)) is not None}
            found.setdefault(unit_of(path), set()).update(unit_of(file) for file in used)
    return found


def room_of(path: Path) -> str:
    """Return the folder of a file; the files at the top of a package are rooms of their own."""
    folder = path.parent
    if folder in FOLDERS.values():
        return shown(path)
    kernel = ROOT / "store" / "kernel"
    return shown(kernel if folder.is_relative_to(kernel) else folder)


def sources_of(package: str) -> list[Path]:
    """Return the files of a package, or of another folder at the top, without those of the packages in it."""
    folder = FOLDERS.get(package, ROOT / package)
    inside = [other for other in FOLDERS.values() if other.parent == folder]
    return sorted(
        path
        for pattern in ("*.py", "*.pyx", "*.pxi", "*.pyi")
        for path in folder.rglob(pattern)
        if not any(path.is_relative_to(other) for other in inside)
    )


def every_source() -> Iterator[Path]:
    for top in (*MAY_IMPORT, "tests", "examples", "benchmarks"):
        yield from sources_of(top)


def owner_of(name: str) -> str | None:
    """Return the package that a dotted name belongs to; None for what is not ours."""
    first, *rest = name.split(".")
    if first != "rmqclient":
        return None
    return rest[0] if rest and rest[0] in FOLDERS else "rmqclient"


@cache
def file_of(name: str) -> Path | None:
    """Return the file that an imported name stands in: of the module, or of the package that offers it."""
    parts = name.split(".")
    if parts[0] != "rmqclient":
        return None
    if parts[1:2] and parts[1] in LINKED:
        parts = parts[1:]
    while parts:
        stem = ROOT.joinpath(*parts)
        for path in (stem.with_suffix(".py"), stem.with_suffix(".pyx"), stem / "__init__.py"):
            if path.is_file():
                return path
        parts.pop()
    return None


@cache
def imported_names(path: Path) -> frozenset[str]:
    """Return everything a file imports, in full: ``from os import path`` gives ``os.path``."""
    text = path.read_text(encoding="utf-8")
    return frozenset(python_imports(path, text) if path.suffix in {".py", ".pyi"} else cython_imports(text))


def python_imports(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{shown(path)}, line {node.lineno}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def has_code(path: Path, pattern: re.Pattern[str]) -> bool:
    """Whether a pattern of code that stands in one piece is found outside of a file's strings and comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py" or not pattern.search(text):
        return bool(pattern.search(text))
    return bool(pattern.search(ast.unparse(_Undocumented().visit(ast.parse(text)))))


class _Undocumented(ast.NodeTransformer):
    """Empties strings."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("") if isinstance(node.value, str) else node


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
