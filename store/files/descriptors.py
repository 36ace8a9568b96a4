"""Descriptors: the numbers of open files, which the kernel gives from the lowest that is free."""

from __future__ import annotations

import fcntl
import os

_FIRST = 3
"""The number behind standard input, output and errors."""


def above_streams(descriptor: int) -> int:
    """Return an open file under a number that is none of the standard streams; the number that is given is closed then.

    A program whose streams are closed, such as a daemon, may open them again, which would close a file of the store in
    their place, or print into it.
    """
    if descriptor >= _FIRST:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST)
    finally:
        os.close(descriptor)
