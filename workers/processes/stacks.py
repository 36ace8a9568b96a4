"""Stacks: a worker lets itself be asked for them, as :mod:`rmqclient.admin.stacks` asks."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import signal

from rmqclient.admin.stacks import path_of


def tell_stacks() -> None:
    """Let this process write its stacks at SIGUSR1. Without a state directory it does not, and goes on."""
    path = path_of(os.getpid())
    unasked = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.unlink(missing_ok=True)  # of an earlier process
        file = unasked.open("wb")
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
        unasked.rename(path)
    except OSError:
        return
    atexit.register(path.unlink, missing_ok=True)


def forget_stacks(pid: int) -> None:
    """Remove what a worker that was killed could not remove."""
    with contextlib.suppress(OSError):
        path_of(pid).unlink(missing_ok=True)
