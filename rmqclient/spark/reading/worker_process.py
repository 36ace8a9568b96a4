"""Worker process: the process of PySpark in which tasks run, one after the other.

PySpark collects garbage after each task [pyspark.daemon]. That looks at every object of all imported libraries, which
takes longer than a small task. What is there when the first task begins is here to stay, so it is left out of that.
"""

from __future__ import annotations

import functools
import gc

from pyspark import TaskContext


def keep_objects() -> None:
    """Let the garbage collector pass over what is there now. Does nothing but once, and nothing outside of a task."""
    if TaskContext.get() is not None:
        _keep_objects()


@functools.cache
def _keep_objects() -> None:
    gc.freeze()
