"""Worker process: the process of PySpark in which tasks run, one after the other.

PySpark collects garbage after each task [pyspark.daemon]. That looks at every object of all imported libraries, which
takes longer than a small task. What a task finds when it begins is here to stay, so it is left out of that. Tasks of
different kinds import different modules, so a task looks whether there are more modules than before.
"""

from __future__ import annotations

import functools
import gc
import sys

from pyspark import TaskContext


def keep_objects() -> None:
    """Let the garbage collector pass over what is there now. Does nothing outside of a task, or without new modules."""
    if TaskContext.get() is not None:
        _keep_objects(len(sys.modules))


@functools.cache
def _keep_objects(modules: int) -> None:  # noqa: ARG001 - the key: once for each number
    gc.freeze()
