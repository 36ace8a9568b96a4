"""Inbox: a handler changes a database of Django once, however often its message is delivered.

::

    inbox = Inbox("billing")                            # the group

    @app.handler("payments", group="billing")
    def book(message: ReceivedMessage) -> None:
        with inbox.once(message) as is_first:           # a transaction
            if is_first:
                Account.objects.filter(pk=7).update(balance=F("balance") + 5)

:mod:`rmqclient.databases.inbox` says what that promises, and how.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from django.db import DEFAULT_DB_ALIAS, IntegrityError, connections, transaction

from rmqclient.databases.inbox import identity_of
from rmqclient.frameworks.django.models import HandledMessage
from rmqclient.message import ReceivedMessage
from rmqclient.names import check_group
from rmqclient.store import clock
from rmqclient.store.crash_points import CrashPoint, reach


class Inbox:
    """The messages that a group has handled, in one database of ``DATABASES``."""

    def __init__(self, group: str, using: str = DEFAULT_DB_ALIAS) -> None:
        self.group = check_group(group)
        self.using = using

    @contextmanager
    def once(self, message: ReceivedMessage, *, key: str | None = None) -> Iterator[bool]:
        """Open a transaction, and tell its block whether the group handles this message for the first time.

        The end of the block commits, and an exception rolls back. Raises RuntimeError inside of another transaction,
        what the database raises, also for the commit, and for a statement that failed although the block went on. The
        handler must let these errors out.
        """
        with transaction.atomic(using=self.using, durable=True):
            yield self.add(message, key=key)
            reach(CrashPoint.INBOX_HANDLED)
            self._check_unbroken()
        reach(CrashPoint.INBOX_COMMITTED)

    def add(self, message: ReceivedMessage, *, key: str | None = None) -> bool:
        """Write a message down in the present transaction; return whether it was new.

        This is for a transaction that the handler ends itself, such as one for a whole batch. If another open
        transaction has written the message down, this waits for its end. Raises ValueError outside of
        ``transaction.atomic``, and for an empty ``key``; and what the database raises.
        """
        if not connections[self.using].in_atomic_block:
            raise ValueError(
                f"the database {self.using!r} is in no transaction and commits every statement by itself: write `with "
                "transaction.atomic():` around it, or the message counts as handled whether your other statements "
                "succeed or not"
            )
        row = HandledMessage(
            group_name=self.group,
            message_id=identity_of(message, key),
            handled_at=clock.wall_ms(),
        )
        try:
            with transaction.atomic(using=self.using):
                row.save(force_insert=True, using=self.using)
        except IntegrityError:
            return False
        reach(CrashPoint.INBOX_MARKED)
        return True

    def forget_before(self, moment: datetime) -> int:
        """Delete the group's rows from before a time; return how many there were.

        If the message of a deleted row comes again, it is handled as new. It can come again as long as the store keeps
        it; a retry or a dead letter keeps it as long again, and a seek goes back to it.
        """
        old = HandledMessage.objects.using(self.using).filter(
            group_name=self.group, handled_at__lt=int(moment.timestamp() * 1_000)
        )
        return int(old.delete()[0])

    def _check_unbroken(self) -> None:
        """Raise an error if a statement has failed: the end of the block would roll back without a word."""
        connection = connections[self.using]
        if connection.needs_rollback:
            raise RuntimeError(
                "a part of this transaction has failed, so the database can only roll back: let the error out of the "
                "block, or write `with transaction.atomic():` around what may fail"
            )
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
