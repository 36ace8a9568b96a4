"""Python: the interpreter for Spark's Python workers on this machine.

It is the one that runs now. Spark puts ``pyspark.zip`` of its distribution before everything else in their
``PYTHONPATH``, although the same files are installed. What comes from a zip is compiled anew by each process, which
takes a second of a core, and a stream has ten seconds to start one. So a script takes that entry out.
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
    """Return the program to start Python workers with; this interpreter itself, where no script can be written."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return sys.executable
    archive = Path(found.origin).parent / "python" / "lib" / "pyspark.zip"
    text = _SCRIPT.format(archive=shlex.quote(str(archive)), python=shlex.quote(sys.executable))
    try:
        return str(script("python", text))
    except OSError:
        return sys.executable
