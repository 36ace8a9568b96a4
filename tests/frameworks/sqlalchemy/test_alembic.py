"""Alembic finds the tables, and makes what the application uses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("alembic", reason="no alembic: make install-all brings it")

from alembic.autogenerate import compare_metadata, produce_migrations
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import MetaData, create_engine

from rmqclient import Message
from rmqclient.frameworks.sqlalchemy import Inbox, Outbox


@pytest.fixture
def metadata() -> MetaData:
    """The tables of an application that has only ours."""
    metadata = MetaData()
    Outbox(metadata)
    Inbox("billing", metadata)
    return metadata


def test_a_migration_that_was_generated_makes_the_tables(tmp_path: Path, metadata: MetaData) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with engine.begin() as connection:
        context = MigrationContext.configure(connection)
        generated = produce_migrations(context, metadata).upgrade_ops
        assert generated is not None
        carry_out(Operations(context), generated.ops)
        assert compare_metadata(context, metadata) == []
        Outbox(MetaData()).add(connection, Message("orders", b"1"))
    engine.dispose()


def carry_out(operations: Operations, steps: Sequence[Any]) -> None:
    for step in steps:
        if hasattr(step, "ops"):
            carry_out(operations, step.ops)
        else:
            operations.invoke(step)
