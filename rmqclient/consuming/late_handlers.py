"""Late handlers: what a stopped consumer keeps while a handler that keeps an order still runs.

A queue with an order must not go to another member before its handler has ended. So the member stays in its group,
and what it needs stays open, until then or until the process ends. The member takes no new message, and the other
queues of its topics go to other members at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rmqclient.backend.backend import Backend
from rmqclient.backend.group_protocols import Membership
from rmqclient.consuming.rebalance import Rebalancer
from rmqclient.delivery.delivery import Delivery
from rmqclient.store.errors import QueueError, StoreClosed
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class Joined(Protocol):
    """A handler of a consumer that takes part in a group."""

    membership: Membership
    rebalancer: Rebalancer[Any]
    delivery: Delivery[Any]


class LateHandlers:
    """Keeps queues whose handler runs behind the end of its consumer, in a thread; then calls ``close``.

    ``kept`` are those whose :meth:`Rebalancer.release_all` has returned False. Every ``look_every_s`` seconds it looks
    whether the handlers have ended, and renews the leases. A store that its owner closes ends it, too.
    """

    def __init__(
        self, backend: Backend, kept: Sequence[Joined], look_every_s: float, close: Callable[[], None]
    ) -> None:
        self._backend = backend
        self._kept = list(kept)
        self._look_every_s = look_every_s
        self._close = close

    def start(self) -> None:
        """Begin to wait for the handlers. The thread keeps no process alive."""
        GuardedThread(target=self._run, name="rmq-late-handlers").start()

    def _run(self) -> None:
        while self._kept:
            self._kept = [each for each in self._kept if not self._has_left(each)]
        try:
            self._close()
        except Exception:  # noqa: BLE001 - nobody is there to take it
            _log.exception("a consumer whose handlers ended late cannot be closed in order")

    def _has_left(self, joined: Joined) -> bool:
        """Wait for a while; leave the group and return True when no handler runs with a queue of the member."""
        joined.delivery.join(self._look_every_s / len(self._kept))
        try:
            self._backend.check_usable()
            if not joined.rebalancer.release_all():
                joined.rebalancer.stay_behind()
                return False
            joined.membership.leave()
        except StoreClosed:
            return True
        except (QueueError, OSError) as error:  # the next look tries again
            _log.error("group %s: queues cannot be kept, trying again: %s", joined.membership.group, error)
            return False
        return True
