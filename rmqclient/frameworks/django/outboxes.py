"""Outbox: a message is sent if and only if the transaction of Django that wrote it commits.

::

    with transaction.atomic():
        order.save()
        outbox.add(Message("orders", {"id": order.pk}))

The workers of ``manage.py rmq run`` send it, one of them at a time, and so does ``manage.py rmq relay``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from rmqclient.databases import relay_lock
from rmqclient.databases.database import any_text
from rmqclient.databases.outbox import SENT, Row, columns_of
from rmqclient.databases.relay import Relay
from rmqclient.databases.relay_lock import Unlock
from rmqclient.duration import Duration
from rmqclient.frameworks.django.application import app
from rmqclient.frameworks.django.models import OutboxMessage
from rmqclient.frameworks.django.settings import given
from rmqclient.message import Message


class Outbox:
    """The outbox of one database. ``alias`` is one of ``DATABASES``; None stands for ``RMQ["OUTBOX"]``."""

    table = "rmq_outbox"

    def __init__(self, alias: str | None = None) -> None:
        self._alias = alias

    @property
    def alias(self) -> str:
        """The alias of its database. Raises ImproperlyConfigured if no outbox is named."""
        alias = self._alias or given("OUTBOX")
        if alias is None:
            raise ImproperlyConfigured(
                'the project has no outbox: name its database in the settings, RMQ = {..., "OUTBOX": "default"}, and '
                "run manage.py migrate"
            )
        return str(alias)

    def add(
        self,
        message: Message,
        sharding_key: str | None = None,
        *,
        delay: Duration | None = None,
        deliver_at: Any = None,
    ) -> str:
        """Write a message in the transaction of the database; return its unique key, which becomes one of its keys.

        The message is sent if that transaction is committed. ``delay``, which counts from now, and ``deliver_at`` are
        those of :meth:`rmqclient.Producer.send`. Raises ValueError for a time that this refuses, and outside of
        ``transaction.atomic``, where the message would be sent whatever happens later; ImproperlyConfigured; and what
        the database raises.
        """
        alias = self.alias
        if not connections[alias].in_atomic_block:
            raise ValueError(
                f"the database {alias!r} is in no transaction and commits every statement by itself: write `with "
                "transaction.atomic():` around it, or the message is sent whether your other statements succeed or not"
            )
        columns = columns_of(message, sharding_key, delay=delay, deliver_at=deliver_at)
        OutboxMessage.objects.using(alias).create(**columns)
        return str(columns["unique_key"])

    def forget_sent(self) -> int:
        """Delete the rows that were sent; return how many."""
        deleted, _ = OutboxMessage.objects.using(self.alias).filter(state=SENT).delete()
        return int(deleted)

    def relay(self, **options: Any) -> Relay:
        """Return what sends the messages to the project's store; ``options`` are those of :class:`rmqclient.Relay`.

        It takes the connection that Django has for the thread that runs it, which must be in no transaction.
        """
        return Relay(app.tables.place, self, lambda: _Alone(self.alias), **options)

    # --- what a relay asks ------------------------------------------------------------------------

    def rows(self, connection: _Alone, state: int, limit: int) -> list[Row]:
        """Return the first ``limit`` rows in a state."""
        found = OutboxMessage.objects.using(self.alias).filter(state=state).order_by("id")
        with any_text(connection.of_driver):
            return [Row(*fields) for fields in found.values_list(*Row._fields)[:limit]]

    def mark(self, _connection: _Alone, row: Row, state: int, message_id: str | None, refusal: str | None) -> None:
        """Set the state of a row, and the message id or the reason of the refusal."""
        changed = OutboxMessage.objects.using(self.alias).filter(id=row.id)
        changed.update(state=state, message_id=message_id, refusal=refusal)

    def lock(self, connection: _Alone) -> Unlock | None:
        """Become the only relay of the table; return what ends that. None if another relay is at work."""
        match connection.vendor:
            case "sqlite":
                file = relay_lock.file_of(connection.ask("PRAGMA database_list"))
                return relay_lock.of_file(file, self.table)
            case "postgresql":
                asked = connection.ask("SELECT pg_try_advisory_lock(%s, %s)", *relay_lock.numbers(self.table))
            case "mysql":
                asked = connection.ask("SELECT GET_LOCK(%s, 0)", relay_lock.name(self.table))
            case other:
                raise ValueError(f"{other}: an outbox knows SQLite, PostgreSQL, MySQL and MariaDB")
        ((is_locked,),) = asked
        return relay_lock.ends_with_session if is_locked else None


class _Alone:
    """Django's connection of the thread, begun anew, in transactions that the relay ends."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._connection = connections[alias]
        self._connection.close()
        transaction.set_autocommit(False, using=alias)
        self.vendor = str(self._connection.vendor)

    @property
    def of_driver(self) -> object:
        """The connection of the driver of the database."""
        self._connection.ensure_connection()
        return self._connection.connection

    def ask(self, statement: str, *values: object) -> list[Any]:
        """Return the rows of a query, in a transaction of its own."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values)
            rows = list(cursor.fetchall())
        self.commit()
        return rows

    def commit(self) -> None:
        """End the transaction."""
        transaction.commit(using=self._alias)

    def rollback(self) -> None:
        """Undo the transaction."""
        transaction.rollback(using=self._alias)

    def close(self) -> None:
        """End the session, and with it the lock; the next use of the connection begins one that commits by itself."""
        self._connection.close()


outbox = Outbox()
"""The outbox of the project."""


def relaying() -> Iterator[None]:
    """Send what is in the outbox for as long as the process lives: a lifespan of the workers."""
    with outbox.relay().running():
        yield
