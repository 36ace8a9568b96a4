"""Native threads: :mod:`threading` as it is without the patches of gevent and eventlet.

They replace threads and locks by green ones, all of which run in one thread of the kernel. The store waits in the
kernel, and its threads wait for each other: the first such wait would hold every green thread of the process for good.
So whatever a sending process loads imports ``threading`` from here. In a patched process it is a copy of the standard
module, made with the functions that were there before: its threads and locks are those of the kernel.

A green thread that waits here holds the others until it has what it waits for. So nothing that lets another one run, as
a patched ``time.sleep`` does, is called while such a lock is held.
"""

from __future__ import annotations

import builtins
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rmqclient.store.errors import StoreUnusable

__all__ = ["check_native", "check_unpatched", "is_patched", "sleep", "threading"]

if TYPE_CHECKING:
    import threading
    from time import sleep


def check_native() -> None:
    """Raise StoreUnusable if the process was patched after this module was imported: its locks are green by now."""
    if not is_patched and (by := _patched_by()):
        raise StoreUnusable(
            f"{by} has patched the threads of this process after rmqclient had opened a store or was about to, and a "
            "store needs real ones: patch in the first lines of the program"
        )


def check_unpatched(what: str) -> None:
    """Raise StoreUnusable in a patched process. ``what`` is for words: what needs more real threads than these."""
    if by := _patched_by():
        raise StoreUnusable(
            f"{by} has patched the threads of this process, and {what} needs real ones: leave them as they are "
            "(monkey.patch_all(thread=False)), or use another process"
        )


def _patched_by() -> str:
    """Return which library has made the threads of this process green; empty if none has. Imports neither of them."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    if gevent is not None and gevent.is_module_patched("threading"):
        return "gevent"
    return "eventlet" if eventlet is not None and eventlet.is_monkey_patched("thread") else ""


def _before_gevent(name: str) -> ModuleType:
    """Return a copy of a module as it was before gevent patched it, which imports such copies of ``_thread``."""
    import importlib.util  # noqa: PLC0415 - hardly any process needs it

    thread = ModuleType("_thread")
    vars(thread).update(vars(sys.modules["_thread"]))
    vars(thread).update(sys.modules["gevent.monkey"].saved.get("_thread", {}))

    def imported(name: str, *arguments: Any) -> ModuleType:
        return thread if name == "_thread" else builtins.__import__(name, *arguments)

    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": imported}
    spec.loader.exec_module(module)
    return module


is_patched = bool(_patched_by())
"""Whether the process was patched before it came here, so that ``threading`` is a copy."""

if not TYPE_CHECKING:
    match _patched_by():
        case "gevent":
            threading = _before_gevent("threading")
            sleep = sys.modules["gevent.monkey"].get_original("time", "sleep")
        case "eventlet":
            threading = sys.modules["eventlet.patcher"].original("threading")
            sleep = sys.modules["eventlet.patcher"].original("time").sleep
        case _:
            import threading
            from time import sleep
