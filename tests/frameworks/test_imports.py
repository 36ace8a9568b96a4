"""Nobody pays for a framework that the application does not use."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.test_architecture import MAY_IMPORT, imported_names, shown, sources_of

FRAMEWORKS = {
    "alembic", "asgiref", "django", "django_tasks", "fastapi", "litestar", "pydantic", "sqlalchemy", "starlette",
    "structlog",
}  # fmt: skip
LOOKED = f"import sys; print(sorted({{name.split('.')[0] for name in sys.modules}} & {FRAMEWORKS!r}))"


@pytest.mark.parametrize(
    "imported",
    ["rmqclient.app", "rmqclient.testing.kit", "rmqclient.workers.cli", "rmqclient.frameworks.asgi",
     "rmqclient.frameworks.structlog", "rmqclient.frameworks.django"],
)  # fmt: skip
def test_these_modules_import_no_framework(imported: str) -> None:
    command = [sys.executable, "-c", f"import {imported}; {LOOKED}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_only_the_rooms_of_frameworks_name_them() -> None:
    for package in MAY_IMPORT:
        for path in sources_of(package):
            where = shown(path)
            used = {name.split(".")[0] for name in imported_names(path)} & FRAMEWORKS
            if where.startswith("rmqclient/frameworks/"):
                room = where.split("/")[2]
                allowed = {"django": {"django", "django_tasks", "asgiref"}, "sqlalchemy": {"sqlalchemy"}}
                assert used <= allowed.get(room, set()), f"{where} imports {used}"
            elif not where.startswith("rmqclient/dashboard/"):
                assert not used, f"{where} imports {used}"


def test_nothing_else_imports_the_rooms_of_frameworks() -> None:
    for package in MAY_IMPORT:
        for path in sources_of(package):
            if not shown(path).startswith("rmqclient/frameworks/"):
                ours = {name for name in imported_names(path) if name.startswith("rmqclient.frameworks")}
                assert not ours, f"{shown(path)} imports {ours}"
