"""Release check: everything that has to hold before a release is published, a line for each.

``make release-check`` runs it. It builds the source distribution, and from that a wheel for each Python that it finds,
in ``build/release``; installs each wheel into an environment of its own, and tries it there. A line begins with

===========  ==========================================================
``ok``       it holds
``bad``      it does not; the exit code is 1 then
``due``      whoever publishes has to decide it first
``--``       it could not be tried on this host, with the reason
===========  ==========================================================
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path

from tests.packaging.distributions import TOP, build_sdist, clean, run, unpack, without_compiler
from tests.packaging.extras import IMPORTED, try_extra

HERE = Path(__file__).parent
WORK = TOP / "build" / "release"
TOOLS = ("auditwheel", "check-wheel-contents", "cibuildwheel", "mypy", "pyright", "twine", "validate-pyproject")
MINORS = (11, 12, 13, 14)
PYPROJECT = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))


class NotTried(Exception):
    """This host lacks something that a check needs."""


class Due(Exception):
    """Something that the release needs, and that only whoever publishes can decide."""


class Report:
    """The lines so far."""

    def __init__(self) -> None:
        self.has_bad = False

    def line(self, name: str, check: Callable[[], str]) -> None:
        """Run a check, which returns what it found, and print its line. Raises nothing that a check raises."""
        try:
            state, text = "ok ", check()
        except NotTried as reason:
            state, text = "-- ", f"not tried: {reason}"
        except Due as decision:
            state, text = "due", str(decision)
        except (AssertionError, OSError, subprocess.SubprocessError, ValueError) as error:
            state, text, self.has_bad = "bad", str(error).strip(), True
        print(f"{state} {name}: {text}", flush=True)


def main() -> int:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    report = Report()
    report.line("changelog", changelog)
    report.line("addresses", addresses)
    report.line("tools", install_tools)
    report.line("pyproject.toml", lambda: tool("validate-pyproject", str(TOP / "pyproject.toml")))
    report.line("wheels of a release", wheels_of_a_release)
    report.line("source distribution", make_sdist)
    report.line("free-threaded Python", refused_without_gil)
    for minor in MINORS:
        report.line(f"wheel 3.{minor}", lambda minor=minor: make_wheel(minor))  # type: ignore[misc]
        report.line(f"installed 3.{minor}", lambda minor=minor: try_wheel(minor))  # type: ignore[misc]
    for extra in sorted(IMPORTED):
        report.line(f"extra {extra}", lambda extra=extra: try_with(extra))  # type: ignore[misc]
    report.line("papers", lambda: tool("twine", "check", "--strict", *distributions()))
    report.line("contents", contents)
    report.line("platform", platforms)
    report.line("mypy", lambda: typed("mypy", "--config-file=", "--strict", "--no-incremental", "--python-executable"))
    report.line("pyright", lambda: typed("pyright", "--pythonpath"))
    return int(report.has_bad)


# --- what is written ------------------------------------------------------------------------------


def changelog() -> str:
    """Return the version. Raises Due until it has a section of its own."""
    version = PYPROJECT["project"]["version"]
    text = (TOP / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\]", text, re.MULTILINE):
        raise Due(f"version {version} has no section: rename [Unreleased]")
    return str(version)


def addresses() -> str:
    """Return the addresses of the project. Raises Due without them: links of the README lead nowhere on its page."""
    urls = PYPROJECT["project"].get("urls", {})
    if not urls:
        raise Due("[project.urls] has none: add Documentation, Source and Changelog")
    return ", ".join(urls)


def wheels_of_a_release() -> str:
    """Return for what cibuildwheel builds a wheel."""
    platform = ("--platform", "linux", "--archs", "x86_64,aarch64")
    identifiers = tool("cibuildwheel", "--print-build-identifiers", *platform, str(TOP)).split()
    wanted = {
        f"cp3{minor}-{libc}_{machine}"
        for minor in MINORS
        for libc in ("manylinux", "musllinux")
        for machine in ("x86_64", "aarch64")
    }
    assert set(identifiers) == wanted, f"expected {sorted(wanted)}, got {sorted(identifiers)}"
    return f"{len(identifiers)}, built by `make wheels` where containers run"


# --- what is built --------------------------------------------------------------------------------


def make_sdist() -> str:
    archive = Path(shutil.move(build_sdist(WORK), WORK))
    shutil.rmtree(WORK / "tree")
    unpack(archive, WORK / "sources")
    return f"{archive.name}, {archive.stat().st_size / 1e6:.1f} MB"


def sources() -> Path:
    """Return the directory of the unpacked source distribution. Raises NotTried without one."""
    for found in (WORK / "sources").glob("*"):
        return found
    raise NotTried("there is no source distribution")


def refused_without_gil() -> str:
    pretend = "import runpy, sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1; runpy.run_path('setup.py')"
    done = subprocess.run(
        [sys.executable, "-c", pretend], cwd=sources(), env=clean(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "needs a Python with the GIL" in done.stderr, done.stderr
    return "refused in words"


def make_wheel(minor: int) -> str:
    """Build a wheel from the source distribution alone, with its own build requirements."""
    python = interpreter(minor)
    copy = shutil.copytree(sources(), WORK / f"build-3.{minor}")
    run(python, "-m", "pip", "wheel", "--no-deps", "-w", str(WORK / "wheels"), ".", cwd=copy, timeout_s=3600)
    shutil.rmtree(copy)
    built = wheel(minor)
    return f"{built.name}, {built.stat().st_size / 1e6:.2f} MB"


def try_wheel(minor: int) -> str:
    """Install a wheel where no compiler is found, and let it send, handle, and outlive a killed worker."""
    environment, built = WORK / f"venv-3.{minor}", wheel(minor)
    run(interpreter(minor), "-m", "venv", str(environment), cwd=WORK)
    variables = without_compiler(environment, WORK / f"bin-3.{minor}")
    python = str(environment / "bin" / "python")
    run(python, "-m", "pip", "install", "--only-binary", ":all:", str(built), cwd=WORK, variables=variables)
    return run(python, str(HERE / "smoke.py"), cwd=WORK, variables=variables).strip()


def try_with(extra: str) -> str:
    """Install the first wheel with one extra, in the newest versions of its packages, and import what it brings."""
    minor = next((minor for minor in MINORS if list((WORK / "wheels").glob(f"*-cp3{minor}-*.whl"))), MINORS[0])
    environment = WORK / f"extra-{extra}"
    try:
        return try_extra(extra, interpreter(minor), wheel(minor), environment)
    finally:
        shutil.rmtree(environment, ignore_errors=True)


def interpreter(minor: int) -> str:
    """Return a Python of this version that can make environments. Raises NotTried when there is none."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python3.{minor}"), *versions.glob(f"3.{minor}.*/bin/python3.{minor}")]
    for each in map(str, filter(None, found)):
        if subprocess.run([each, "-c", "import ensurepip"], capture_output=True, check=False).returncode == 0:
            return each
    raise NotTried(f"no Python 3.{minor} here")


def wheel(minor: int) -> Path:
    """Return the wheel for a version. Raises NotTried when there is none."""
    found = sorted((WORK / "wheels").glob(f"*-cp3{minor}-*.whl"))
    if not found:
        raise NotTried("there is no wheel")
    return found[0]


def distributions() -> list[str]:
    return [str(path) for path in [*WORK.glob("*.tar.gz"), *(WORK / "wheels").glob("*.whl")]]


# --- what others say of it ------------------------------------------------------------------------


def install_tools() -> str:
    """Install what checks need into an environment of its own, below that of ``make install``."""
    venv.create(WORK / "tools", with_pip=True)
    pip = str(WORK / "tools" / "bin" / "pip")
    try:
        run(pip, "install", "--quiet", *TOOLS, cwd=WORK)
    except AssertionError as error:
        raise NotTried(str(error).splitlines()[-1]) from error
    return ", ".join(TOOLS)


def tool(name: str, *arguments: str, cwd: Path = WORK) -> str:
    """Run a tool that must succeed; return the last line of what it says. Raises NotTried if it is not installed."""
    program = WORK / "tools" / "bin" / name
    if not program.exists():
        raise NotTried(f"{name} is not installed")
    said = run(str(program), *arguments, cwd=cwd, variables={"NO_COLOR": "1", "TERM": "dumb"}).strip()
    return said if name in ("cibuildwheel", "auditwheel") else said.splitlines()[-1]


def contents() -> str:
    found = sorted((WORK / "wheels").glob("*.whl"))
    return tool(
        "check-wheel-contents", "--config", str(TOP / "pyproject.toml"), "--toplevel", "rmqclient", *map(str, found)
    )


def platforms() -> str:
    """Return the oldest C library that the wheels work with; those of a container of cibuildwheel take an older one."""
    found = sorted((WORK / "wheels").glob("*.whl"))
    told = [" ".join(tool("auditwheel", "show", str(each)).split()) for each in found]
    tags = [re.search(r'platform tag: "(\w+)"', each) for each in told]
    assert all(tags), told
    return ", ".join(sorted({found[1] for found in tags if found is not None}))


def typed(name: str, *arguments: str) -> str:
    """Check an application against the first installed wheel, outside of this tree."""
    environments = sorted(WORK.glob("venv-3.*"))
    if not environments:
        raise NotTried("no wheel is installed")
    directory = WORK / "typed"
    directory.mkdir(exist_ok=True)
    shop = shutil.copy(HERE / "typed_shop.py", directory)
    return tool(name, *arguments, str(environments[0] / "bin" / "python"), str(shop), cwd=directory)


if __name__ == "__main__":
    sys.exit(main())
