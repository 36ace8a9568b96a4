"""Databases for the tests of SQLAlchemy: SQLite in a file, and servers of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqclient.store import MessageStore, open_store
from tests.support.host.once import Once
from tests.support.mariadb import mariadb
from tests.support.mariadb import why_not as why_no_mariadb
from tests.support.postgres import postgres
from tests.support.postgres import why_not as why_no_postgres
from tests.support.stores import SMALL

if TYPE_CHECKING:
    from sqlalchemy import Engine


@pytest.fixture(scope="session")
def postgres_url(once: Once) -> Iterator[str]:
    if reason := why_no_postgres():
        pytest.skip(reason)
    with postgres(once) as name:
        host = name.split()[0].removeprefix("host=")
        yield f"postgresql+psycopg://tests@/postgres?host={host}"


@pytest.fixture(scope="session")
def mariadb_url(once: Once) -> Iterator[str]:
    if reason := why_no_mariadb():
        pytest.skip(reason)
    with mariadb(once) as socket:
        yield f"mysql+pymysql://root@localhost/shop?unix_socket={socket}"


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the database of a test is."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    return str(request.getfixturevalue(f"{request.param}_url"))


ASYNC = {"sqlite": "aiosqlite", "postgresql+psycopg": "asyncpg", "mysql+pymysql": "asyncmy"}
"""By the scheme of each database, its driver for asyncio."""


@pytest.fixture
def async_url(url: str) -> str:
    """Where the same database is for its asyncio driver."""
    scheme, _, place = url.partition(":")
    driver = ASYNC[scheme]
    pytest.importorskip(driver, reason=f"no {driver}: make install-all brings it")
    return f"{scheme.partition('+')[0]}+{driver}:{place}"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """The engine of a database whose tables are empty."""
    from sqlalchemy import create_engine

    from tests.frameworks.sqlalchemy.shop import Base

    engine = create_engine(url)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", SMALL) as opened:
        yield opened
