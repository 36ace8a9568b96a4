"""SQLAlchemy: outbox and inbox in the transaction of a session, on SQLite, PostgreSQL, MySQL and MariaDB.

``outbox`` and ``inbox`` declare their tables in an application's ``MetaData``, so Alembic finds them; ``columns`` has
what the databases do differently.
"""

from rmqclient.frameworks.sqlalchemy.inbox import Inbox
from rmqclient.frameworks.sqlalchemy.outbox import Outbox

__all__ = ["Inbox", "Outbox"]
