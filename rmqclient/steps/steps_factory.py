"""Steps factory: makes the steps of one handler's messages, or refuses them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from rmqclient.errors import HandlerError
from rmqclient.names import function_name
from rmqclient.steps.journal import Journal
from rmqclient.steps.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqclient.backend.backend import Backend
    from rmqclient.handler import Handler
    from rmqclient.message import ReceivedMessage
    from rmqclient.steps.ends import MovedOn

_ORDERED = (
    "a handler that keeps an order cannot pause, because the messages behind would wait as long, or overtake: take the "
    "order away, or send a message with a delay to a handler without one"
)


class StepsFactory:
    """Makes steps for the threads of one handler. It costs nothing until the first message uses them."""

    def __init__(self, backend: Backend, handler: Handler) -> None:
        self._backend = backend
        self._handler = handler

    def steps(self, message: ReceivedMessage, is_ours: Callable[[], bool]) -> Steps:
        """Return the steps of a message for one call. Raises HandlerError, NotOnCluster, and as :class:`Steps`."""
        return Steps(self._journal, message, is_ours, no_pause=_ORDERED if self._handler.order is not None else "")

    def moved_on(self, message: ReceivedMessage, *, was_begun: bool) -> MovedOn | None:
        """Return the end of a call if a later copy of its message is under way, or None.

        It looks for a copy only if messages of the group have steps, or if ``was_begun``: then a dead process may have
        stored the copy. Raises as a read of the index, and StoreBusy.
        """
        handler = self._handler
        can_have = handler.batch is None and handler.order is None and not handler.broadcast
        if not can_have or self._backend.steps is None or not (was_begun or self._journal.is_begun):
            return None
        return self._journal.moved_on(message)

    @cached_property
    def _journal(self) -> Journal:
        handler = self._handler
        for is_so, what in ((handler.batch is not None, "batch=..."), (handler.broadcast, "broadcast=True")):
            if is_so:
                raise HandlerError(
                    f"handler {function_name(handler.function)} has {what}: durable steps are for a handler that takes "
                    "one message, and whose group handles it once"
                )
        return Journal(self._backend, handler.group, "message.steps")
