"""Frameworks: an application's handlers, sends and tables in the framework that it is written with.

===============  =====================================================================================
``asgi``         FastAPI, Starlette, Litestar: a producer, and the handlers, for the life of a process
``django/``      a Django app: settings, a task backend, outbox and inbox, ``manage.py rmq``
``sqlalchemy/``  outbox and inbox through sessions, plain and ``async``, for Alembic, too
``structlog``    the message that is handled, in every event
===============  =====================================================================================

Nothing else imports these modules, and each imports its own framework only: an application pays for what it uses.
"""
