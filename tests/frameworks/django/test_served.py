"""The shop in a real server with a real database: what was committed is handled, through kills, and nothing else."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.django.running import Shop, post, until, why_not
from tests.support.host.once import Once
from tests.support.mariadb import mariadb
from tests.support.mariadb import why_not as why_no_mariadb
from tests.support.postgres import postgres
from tests.support.postgres import why_not as why_no_postgres

ORDERS = 12


@pytest.fixture(scope="module")
def server(once: Once) -> Iterator[str]:
    if reason := why_no_postgres():
        pytest.skip(reason)
    with postgres(once) as name:
        yield name.split()[0].removeprefix("host=")


@pytest.fixture(scope="module")
def maria(once: Once) -> Iterator[str]:
    if reason := why_no_mariadb():
        pytest.skip(reason)
    with mariadb(once) as listening:
        yield listening


@pytest.fixture(params=["sqlite", *(pytest.param(name, marks=pytest.mark.sweep) for name in ("postgresql", "mariadb"))])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    if reason := why_not():
        pytest.skip(reason)
    servers = {"postgresql": "server", "mariadb": "maria"}
    reached = {name: request.getfixturevalue(servers[name]) for name in servers if name == request.param}
    shop = Shop(tmp_path, **reached)
    done = shop.manage("migrate", "--verbosity", "0")
    assert done.returncode == 0, done.stderr
    return shop


@pytest.mark.crash
@pytest.mark.guarantee("G67")
@pytest.mark.guarantee("G68")
@pytest.mark.guarantee("G69")
def test_a_shop_whose_server_and_workers_are_killed_bills_each_order_once(served: Shop) -> None:
    # Given a server that is killed behind its commits, before anybody has sent anything
    with served.server() as address:
        for number in range(ORDERS):
            status, answer = post(f"{address}/orders", {"item": "apples", "count": number % 3})
            assert (status, "error" in answer) == ((400, True) if number % 3 == 0 else (201, False))
    taken = [number for (number,) in served.rows("SELECT id FROM shop_order ORDER BY id")]
    assert len(taken) == ORDERS * 2 // 3
    assert served.rows("SELECT count(*) FROM rmq_outbox WHERE state = 0") == [(2 * len(taken),)]
    # When its workers are killed at their work, too, and others go on
    with served.workers():
        until(lambda: served.rows("SELECT 1 FROM shop_bill") != [])
    with served.workers() as running:
        until(lambda: served.rows("SELECT count(*) FROM rmq_task WHERE status = 'SUCCESSFUL'") == [(len(taken),)])
        until(lambda: len(served.rows("SELECT 1 FROM shop_bill")) >= len(taken))
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
    # Then each order has one bill and its receipt, and what was rolled back has nothing
    assert [each for (each,) in served.rows("SELECT order_number FROM shop_bill ORDER BY order_number")] == taken
    assert served.rows("SELECT count(*) FROM shop_order WHERE receipt = ''") == [(0,)]
    assert served.rows("SELECT DISTINCT state FROM rmq_outbox") == [(2,)]
    assert served.manage("rmq", "group", "lag", "billing", "-o", "json").returncode == 0


def test_the_command_is_that_of_rmq_and_checks_the_settings_first(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    shop = Shop(tmp_path)
    assert "manage.py rmq" in shop.manage("rmq", "--help").stdout
    refused = shop.manage("rmq", "run", "--processes", "none")
    assert (refused.returncode, "is not a valid integer" in refused.stderr) == (2, True)
