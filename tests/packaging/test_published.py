"""What somebody gets who installs a wheel: it runs without a compiler, its types are known, its papers are in order."""

from __future__ import annotations

import shutil
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.packaging.distributions import TOP, clean, run, without_compiler
from tests.packaging.extras import IMPORTED, OURS

pytestmark = [pytest.mark.sweep, pytest.mark.slow]  # the kernel is compiled

HERE = Path(__file__).parent
PYPROJECT = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def test_a_wheel_handles_messages_where_there_is_no_compiler(environment: Path, tmp_path: Path) -> None:
    python = str(environment / "bin" / "python")
    variables = without_compiler(environment, tmp_path / "bin")
    told = run(python, str(HERE / "smoke.py"), cwd=tmp_path, variables=variables)
    assert told.startswith("ok: Python ")


def test_mypy_knows_the_types_of_an_installed_package(environment: Path, tmp_path: Path) -> None:
    python = str(environment / "bin" / "python")
    shop = shutil.copy(HERE / "typed_shop.py", tmp_path)  # beside the sources mypy would read those
    command = (sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--python-executable", python)
    told = run(*command, str(shop), cwd=tmp_path)
    assert told == "Success: no issues found in 1 source file\n"


def test_a_free_threaded_python_is_refused_in_words(sdist: Path) -> None:
    pretend = "import runpy, sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1; runpy.run_path('setup.py')"
    with pytest.raises(AssertionError, match="rmqclient needs a Python with the GIL: this is a free-threaded build"):
        run(sys.executable, "-c", pretend, cwd=sdist)


def test_the_papers_of_a_wheel_are_complete(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        told = Parser().parsestr(opened.read(name).decode())
        held = set(opened.namelist())
    classifiers = told.get_all("Classifier") or []
    assert [f"Programming Language :: Python :: {version}" in classifiers for version in PYTHONS] == [True] * 4
    assert told["License-Expression"] == "Apache-2.0"
    assert f"{name.rpartition('/')[0]}/licenses/LICENSE" in held
    assert told["Author"]
    assert told["Version"] == PYPROJECT["project"]["version"]


def test_a_wheel_is_built_for_each_version_that_is_named_and_for_no_other() -> None:
    built = PYPROJECT["tool"]["cibuildwheel"]["build"].split()
    assert built == [f"cp{version.replace('.', '')}-*" for version in PYTHONS]


def test_the_package_tells_its_version(environment: Path, tmp_path: Path) -> None:
    program = "import rmqclient; print(rmqclient.__version__)"
    told = run(str(environment / "bin" / "python"), "-c", program, cwd=tmp_path)
    assert told.strip() == PYPROJECT["project"]["version"]
    assert "PYTHONPATH" not in clean()


def test_each_extra_that_an_application_installs_is_tried_alone_by_the_release_check() -> None:
    assert PYPROJECT["project"]["optional-dependencies"].keys() == IMPORTED.keys() | OURS
