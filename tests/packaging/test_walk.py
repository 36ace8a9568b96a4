"""A newcomer who has nothing but the wheel: the tutorial, from an empty directory, where there is no compiler."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.session import Command, environment_of, follow, run, steps_of
from tests.packaging.distributions import TOP, without_compiler

pytestmark = [pytest.mark.sweep, pytest.mark.slow]  # the kernel is compiled

TUTORIAL = TOP / "docs" / "start" / "tutorial.md"
TOOLS = ("bash", "cat", "rm", "sleep")


def test_the_tutorial_can_be_followed_with_the_wheel_alone(environment: Path, tmp_path: Path) -> None:
    # Given a path with the environment of the wheel, a shell, and nothing to build with
    variables = environment_of(TOP) | without_compiler(environment, tmp_path / "bin")
    del variables["PYTHONPATH"]
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin" / name).symlink_to(found)
    pytest_command = tmp_path / "bin" / "pytest"
    pytest_command.write_text(f'#!/bin/sh\nexec {environment / "bin" / "python"} -m pytest "$@"\n', encoding="utf-8")
    pytest_command.chmod(0o755)

    # When each file is written and each command is run, then they print what the page shows
    home = tmp_path / "home"
    home.mkdir()
    steps = list(steps_of(TUTORIAL.read_text(encoding="utf-8")))
    assert any(isinstance(step, Command) and step.line.startswith("rmq run") for step in steps)
    follow(steps, home, variables)

    # And what ran was the package of the wheel
    where = Command("python -c 'import rmqclient; print(rmqclient.__file__)'", f"{environment}...\n", False)
    run(where, home, variables)
