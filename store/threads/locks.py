"""Locks: what holds a lock for a block, and leaves none held when a signal handler raises.

Its exception comes behind a call in any line of Python, also behind the one that took a lock. So the kernel takes and
lets go (``kernel/locks.pxi``).
"""

from rmqclient.store.kernel._kernel import Condition, scope

__all__ = ["Condition", "scope"]
