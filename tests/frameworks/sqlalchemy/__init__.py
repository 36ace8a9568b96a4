"""Outbox and inbox of SQLAlchemy, on each database."""
