"""Python: the interpreter for Spark's Python workers on this machine.

The workers use the interpreter that runs now. Spark puts ``pyspark.zip`` of its distribution at the front of their
``PYTHONPATH``, although the same files are installed. Each process compiles modules from a zip anew. This takes a
second of a core, and Spark gives a process of a stream ten seconds to start. A script therefore removes the zip from
``PYTHONPATH``.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path

from rmqclient.spark.scripts import script

_SCRIPT = """\
#!/bin/sh
# The installed pyspark is compiled already; the same in a zip would be compiled by every process.
PYTHONPATH=${{PYTHONPATH#{archive}:}}
export PYTHONPATH
exec {python} "$@"
"""


def worker_python() -> str:
    """Return the program to start Python workers with: the script, or this interpreter if no script can be written."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return sys.executable
    archive = Path(found.origin).parent / "python" / "lib" / "pyspark.zip"
    text = _SCRIPT.format(archive=shlex.quote(str(archive)), python=shlex.quote(sys.executable))
    try:
        return str(script("python", text))
    except OSError:
        return sys.executable
