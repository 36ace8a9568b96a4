"""Patched: processes in which gevent or eventlet have replaced threads by green ones.

The store waits in the kernel, and its threads wait for each other. Green threads of one process cannot: the first such
wait holds all of them, and the locks that they have, for good.
"""

from __future__ import annotations

import sys

from rmqclient.store.errors import StoreUnusable


def check_unpatched() -> None:
    """Raise StoreUnusable in a process whose threads are green. Imports neither library."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    by = "gevent" if gevent is not None and gevent.is_module_patched("threading") else ""
    by = by or ("eventlet" if eventlet is not None and eventlet.is_monkey_patched("thread") else "")
    if by:
        raise StoreUnusable(
            f"{by} has patched the threads of this process, and a store needs real ones: leave them as they are "
            "(monkey.patch_all(thread=False)), use threads (gunicorn -k gthread), or send from another process"
        )
