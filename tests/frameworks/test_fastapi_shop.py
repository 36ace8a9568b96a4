"""The shop in FastAPI, in a real server: orders are billed once, visits are counted, logs name their message."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.django.running import LONG_S, REPOSITORY, post, until
from tests.support.host.once import Once
from tests.support.postgres import postgres
from tests.support.postgres import why_not as why_no_postgres

MISSING = [name for name in ("fastapi", "sqlalchemy", "structlog", "uvicorn") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: make install-all brings it")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.sweep)])
def url(request: pytest.FixtureRequest, tmp_path: Path, once: Once) -> Iterator[str]:
    """The database of the shop."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shop.db'}"
        return
    if reason := why_no_postgres():
        pytest.skip(reason)
    with postgres(once) as name:
        yield f"postgresql+psycopg://tests@/postgres?host={name.split()[0].removeprefix('host=')}"


@contextlib.contextmanager
def running(data: Path, url: str, *command: str) -> Iterator[subprocess.Popen[str]]:
    told = {"SHOP_DATA": str(data), "SHOP_DATABASE": url, "PYTHONPATH": str(REPOSITORY)}
    environment = os.environ | told
    with (data / "log").open("a", encoding="utf-8") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", *command], env=environment, cwd=data, stdout=log, stderr=log, text=True
        )
        with child:
            try:
                yield child
            finally:
                child.kill()


def address_in(log: Path) -> str | None:
    """Return where a server says that it listens, once it does."""
    found = re.search(r"running on (http://127\.0\.0\.1:\d+)", log.read_text(encoding="utf-8"))
    return found[1] if found else None


@pytest.mark.crash
@pytest.mark.guarantee("G67")
def test_orders_of_a_killed_server_are_billed_once(tmp_path: Path, url: str) -> None:
    # Given a server that took orders and a visit, and was killed before anybody sent the orders
    with running(tmp_path, url, "uvicorn", "examples.fastapi_shop.web:api", "--port", "0") as server:
        until(lambda: address_in(tmp_path / "log"))
        address = address_in(tmp_path / "log")
        taken = [post(f"{address}/orders", {"item": "pears", "count": count}) for count in (2, 0, 1)]
        assert [status for status, _ in taken] == [201, 400, 201]
        visit = urllib.request.Request(f"{address}/visits/home", method="POST")
        with urllib.request.urlopen(visit, timeout=LONG_S) as answer:
            assert answer.status == 202
        server.send_signal(signal.SIGKILL)
    # When workers run
    with running(
        tmp_path, url, "rmqclient.workers", "run", "examples.fastapi_shop.handlers:app", "--processes", "1"
    ) as run:
        until(lambda: len(bills(url)) == 2 and "visited" in (tmp_path / "log").read_text(encoding="utf-8"))
        run.send_signal(signal.SIGTERM)
        assert run.wait(LONG_S) == 0
    # Then what was committed is billed, and log lines name their messages
    assert bills(url) == [150, 75]
    lines = [line for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    events = [json.loads(line) for line in lines]
    assert sorted((each["event"], each["topic"], each["group"], each["attempt"]) for each in events) == [
        ("billed", "orders", "billing", 1),
        ("billed", "orders", "billing", 1),
        ("visited", "visits", "counting", 1),
    ]


def bills(url: str) -> list[int]:
    from sqlalchemy import create_engine, text

    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return list(connection.execute(text("SELECT cents FROM bills ORDER BY order_number")).scalars())
    finally:
        engine.dispose()
