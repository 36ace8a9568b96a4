"""Lending: what a call may do for its message when another member has the queue meanwhile."""

from __future__ import annotations

from rmqclient.backend.group_protocols import Grant, RunningSlot


def left_to(running: RunningSlot, grant: Grant) -> Grant | None:
    """Return the grant by which a call finishes its messages, if the next owner of the queue has left them to it.

    ``running`` is the slot of the call, and ``grant`` the one under which it began. None if the messages are not its
    own any more.
    """
    left = grant.lent_to(running)
    return left if left is not None and left.valid else None


def is_ours(running: RunningSlot, grant: Grant) -> bool:
    """Tell whether an acknowledgement of what a call runs would be accepted now."""
    return grant.valid or left_to(running, grant) is not None
