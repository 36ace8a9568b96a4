"""Lock owner: what the mutexes of the runtime file know an opening by, and how others see that it lives.

Each opening of a store takes a number that is never given again: the next one of a counter in the runtime file, and the
process id in its low bits, which tells people where to look. A mutex word holds the number of its owner. As long as the
owner lives, it keeps byte ``OWNER_BYTES + number`` of the lock file locked, by a descriptor of its own; whoever waits
for a mutex and finds that byte free takes the mutex from the dead.

No number of a thread or a process is compared, because these are equal in different PID namespaces: the main threads of
two containers of one image always have the same. docs/decisions/0030 says more.

- The number is locked before any mutex holds it. A process that is killed in between wastes a number.
- The descriptor lives as long as the mapping of the runtime file, not as long as the open store: a thread that is about
  to append while another one closes the store still holds the mutex as somebody alive.
- A forked child closes its copy, or it would keep a dead parent alive, and locks nothing by what it has inherited.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from rmqclient.store.errors import StoreUnusable, store_errors
from rmqclient.store.files import fork
from rmqclient.store.files.descriptors import above_streams
from rmqclient.store.kernel._kernel import LockOwner

_PROCESS_BITS = 22  # PID_MAX_LIMIT of 64-bit Linux; repeated in store/kernel/shared_memory.h
_COUNTER_BITS = 40


def new_owner(lock_path: Path, next_count: Callable[[], int]) -> LockOwner:
    """Return an owner for one opening; ``next_count`` gives a number that it has never given before.

    Raises StoreUnusable on a file system without such locks, LimitReached, DiskFailed.
    """
    with fork.held_off:
        while True:
            owner = _try(lock_path, _number(next_count()))
            if owner is not None:
                fork.register(owner)
                return owner


def _number(count: int) -> int:
    return (count & (1 << _COUNTER_BITS) - 1) << _PROCESS_BITS | os.getpid() & (1 << _PROCESS_BITS) - 1


def _try(lock_path: Path, number: int) -> LockOwner | None:
    """Return the owner with this number; None when a process has it, which has left an earlier runtime file mapped."""
    with store_errors(f"{lock_path}: the lock file cannot be opened"):
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = above_streams(os.open(lock_path, flags))
    try:
        return LockOwner(descriptor, number)
    except OSError as error:
        os.close(descriptor)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise StoreUnusable(f"{lock_path}: cannot be locked: {error.strerror}") from error
        return None
    except BaseException:
        os.close(descriptor)
        raise
