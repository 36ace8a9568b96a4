"""A newcomer who has the wheel alone: each page that can be copied, from an empty directory, without a compiler."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.sessions.session import Command, at_a_free_port, environment_of, follow, run, steps_of
from tests.docs.sessions.walks import WALKS, skip_without
from tests.packaging.distributions import TOP, without_compiler

pytestmark = [pytest.mark.sweep, pytest.mark.slow]  # the kernel is compiled

TOOLS = ("bash", "cat", "cp", "curl", "grep", "mv", "rm", "sleep", "touch")


@pytest.fixture
def variables(environment: Path, tmp_path: Path) -> dict[str, str]:
    """A path with the environment of the wheel, a shell and its tools, and nothing to build with."""
    variables = environment_of(TOP) | without_compiler(environment, tmp_path / "bin")
    del variables["PYTHONPATH"]
    for name in TOOLS:
        if found := shutil.which(name):
            (tmp_path / "bin" / name).symlink_to(found)
    pytest_command = tmp_path / "bin" / "pytest"
    pytest_command.write_text(f'#!/bin/sh\nexec {environment / "bin" / "python"} -m pytest "$@"\n', encoding="utf-8")
    pytest_command.chmod(0o755)
    return variables


@pytest.mark.parametrize("page", [pytest.param(page, id=name) for name, page in WALKS.items()])
def test_a_page_can_be_followed_with_the_wheel_alone(
    page: Path, environment: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    text = page.read_text(encoding="utf-8")
    skip_without(text)

    # When each file is written and each command is run, then they print what the page shows
    home = tmp_path / "home"
    home.mkdir()
    follow(steps_of(at_a_free_port(text)), home, variables)

    # And what ran was the package of the wheel
    where = Command("python -c 'import rmqclient; print(rmqclient.__file__)'", f"{environment}...\n")
    run(where, home, variables)


def test_four_walks_are_those_of_a_newcomer() -> None:
    lines = {
        name: [step.line for step in steps_of(page.read_text(encoding="utf-8")) if isinstance(step, Command)]
        for name, page in WALKS.items()
    }
    assert any(line.startswith("pytest ") for line in lines["docs/start/tutorial.md"])
    assert any(line.startswith("python manage.py rmq run") for line in lines["docs/frameworks/django.md"])
    assert any("uvicorn" in line for line in lines["docs/frameworks/fastapi.md"])
    assert any(line.startswith("kill -9") for line in lines["docs/handling/steps.md"])
