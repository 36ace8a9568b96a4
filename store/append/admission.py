"""Admission: whether an append may be made, and what it waits for, by who appends.

=============  ===========================================  ==========================================================
who            while too few followers are in sync          after the append
=============  ===========================================  ==========================================================
a sender       is refused, or goes on: as the store is set  waits for followers
a server       the same                                     waits by itself, for many at a time (``Later``)
a quick send   is refused: a server looks at it again       cannot wait (``Never``)
the store      appends what waited, and what it decides     nobody waits: followers have the message it came from
=============  ===========================================  ==========================================================

A store that follows another one takes none of them. The kernel asks only while ``restricted`` is not 0, so a store
without any of this pays for one load of a word, on a cache line that each append reads.
"""

from __future__ import annotations

from rmqclient.store.append.replicas import REPLACED, WAITED_FOR, Copies, Replicas
from rmqclient.store.errors import ReplicaUnavailable


class Waits:
    """A sender's: waits for followers inside the append."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def admit(self) -> int:
        """Return the bits of ``restricted`` that do not stop the append. Raises ReadOnlyReplica, ReplicaUnavailable."""
        self._replicas.admit()
        return WAITED_FOR | REPLACED

    def replicated(self, end: int) -> int:
        """Wait until the log is replicated up to ``end``; return ``SendResult.copies``. Raises NotReplicated."""
        made = self._replicas.settle(end)
        return int(Copies.NOT_ASKED if made is None else Copies.MADE if made else Copies.LATE)


class Later(Waits):
    """A server's: asks :class:`Replicas` by itself, for many messages at a time."""

    def replicated(self, end: int) -> int:
        """Return at once."""
        del end
        return int(Copies.NOT_ASKED)


class Never(Later):
    """For answers that cannot wait."""

    def admit(self) -> int:
        """Refuse. Raises ReadOnlyReplica, ReplicaUnavailable."""
        self._replicas.admit()
        raise ReplicaUnavailable("this answer cannot wait for followers; nothing was written")


class Own(Later):
    """The store's: what waited, and what the store decides."""

    def admit(self) -> int:
        """Allow the append. Raises ReadOnlyReplica."""
        self._replicas.check_primary()
        return WAITED_FOR | REPLACED
