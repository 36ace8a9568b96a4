"""Worker process: the process of PySpark in which tasks run, one after another.

PySpark collects garbage after each task [pyspark.daemon]. That visits every object of all imported libraries, which
takes longer than a small task. Objects from before a task stay anyway, so they are excluded. Tasks of different kinds
import different modules, so each task checks whether there are more modules than before.
"""

from __future__ import annotations

import functools
import gc
import sys

from pyspark import TaskContext


def keep_objects() -> None:
    """Exclude existing objects from garbage collection. Does nothing outside of a task, or without new modules."""
    if TaskContext.get() is not None:
        _keep_objects(len(sys.modules))


@functools.cache
def _keep_objects(modules: int) -> None:  # noqa: ARG001 - the key: once for each number
    gc.freeze()
