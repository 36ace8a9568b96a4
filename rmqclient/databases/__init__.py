"""Databases: a database transaction and a message that take effect together.

==============  ===============================================================================
``outbox``      the messages that a transaction wrote, to be sent if and only if it commits
``relay``       sends them, once each
``relay_lock``  keeps relays of one outbox from working at the same time
``inbox``       applies a message to a database once
``database``    the operations of SQLite and PostgreSQL that these use
==============  ===============================================================================

Applications use :class:`rmqclient.Outbox`, :class:`rmqclient.Relay` and :class:`rmqclient.Inbox`.
"""
