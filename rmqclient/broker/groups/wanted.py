"""Wanted: which messages a remote member wants, as the text that the members of a group compare.

A local member's text is :attr:`rmqclient.handler.Handler.subscription`: tags, filters, order and allocation. A
heartbeat says nothing of the last two (:mod:`rmqclient.store.runtime.subscription`).
"""

from __future__ import annotations

from rmqclient.names import RETRY_PREFIX
from rmqclient.remoting import bodies
from rmqclient.store.runtime.subscription import REMOTE

_RETRIES = "*"
"""What members of a retry topic say."""


def text_of(subscription: bodies.Subscription) -> str:
    """Return a remote member's text, as a local one with the same tags and filter begins its own."""
    if subscription.topic.startswith(RETRY_PREFIX):
        return _RETRIES
    if subscription.expression_type == "TAG":
        return f"tags {' || '.join(subscription.tags) or '*'}{REMOTE}"
    return f"tags *; {subscription.expression_type.lower().removesuffix('92')} {subscription.expression!r}{REMOTE}"


def allocation_of(text: str) -> str:
    """Return the name of the allocation in a member's text; ``averaged`` when it has none."""
    return text.rpartition("; allocation ")[2] or "averaged" if "; allocation " in text else "averaged"
