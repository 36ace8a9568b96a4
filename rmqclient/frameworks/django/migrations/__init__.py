"""Migrations: the tables of outbox, inbox and task results."""
