"""Databases: a database transaction and a message that take effect together.

``outbox`` sends a message if and only if a transaction commits, ``inbox`` applies a message to a database once, and
``database`` has the operations of SQLite and PostgreSQL that both use. Applications use :class:`rmqclient.Outbox`,
:class:`rmqclient.Relay` and :class:`rmqclient.Inbox`.
"""
