"""The source distribution and the wheel that is built from it, beside an application with names like ours."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging.distributions import LINKED, TOP, clean, run

pytest.importorskip("pip")

pytestmark = [pytest.mark.sweep, pytest.mark.slow]  # the kernel is compiled


def test_the_sources_hold_each_file_once_as_a_real_file_with_all_that_the_kernel_is_compiled_from(sdist: Path) -> None:
    held = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*")}
    assert not [path for path in sdist.rglob("*") if path.is_symlink()]
    assert not {name for name in held if name.split("/")[0] in {*LINKED, "tests"}}
    made = ("_kernel.c", "constants.pxi", ".so")
    assert not {name for name in held if name.endswith(made)}
    kernel = TOP / "rmqclient" / "store" / "kernel"
    sources = {
        path.relative_to(TOP).as_posix() for suffix in ("pyx", "pxi", "h") for path in kernel.rglob(f"*.{suffix}")
    }
    assert {name for name in sources if not name.endswith(made)} <= held
    modules = {path.relative_to(TOP).as_posix() for name in LINKED for path in (TOP / name).rglob("*.py")}
    assert {f"rmqclient/{name}" for name in modules} <= held


def test_the_wheel_holds_the_package_and_nothing_beside_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"rmqclient"}
    assert not [name for name in names if name.endswith((".c", ".pyx", ".pxi", ".h")) or "/tests/" in name]
    assert len([name for name in names if name.endswith(".so")]) == 1
    assert {"rmqclient/py.typed", "rmqclient/store/kernel/_kernel.pyi"} <= set(names)
    assert len(names) == len(set(names))
    pages = TOP / "rmqclient" / "dashboard"
    shown = {
        path.relative_to(TOP).as_posix() for kind in ("static", "templates") for path in (pages / kind).rglob("*.*")
    }
    assert {name for name in shown if (TOP / name).is_file()} <= set(names)


def test_an_application_with_a_store_workers_and_tests_of_its_own_runs(environment: Path, tmp_path: Path) -> None:
    # Given a shop whose folders have the names of ours
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "orders.py").write_text(ORDERS, encoding="utf-8")
    (shop / "workers.py").write_text("NAME = 'the workers of the shop'\n", encoding="utf-8")
    for name in ("store", "tests", "remoting", "broker"):
        (shop / name).mkdir()
        (shop / name / "__init__.py").write_text(f"NAME = 'the {name} of the shop'\n", encoding="utf-8")
    rmq = str(environment / "bin" / "rmq")

    # When its handler runs in a worker
    with subprocess.Popen([rmq, "run", "orders:app", "--processes", "1"], cwd=shop, env=clean()) as supervisor:
        try:
            run(rmq, "send", "orders", "7", "--store", "queue", cwd=shop)
            bill = shop / "bill"
            run(sys.executable, "-c", WAIT, str(bill), cwd=shop)
        finally:
            supervisor.terminate()
    assert supervisor.returncode == 0

    # Then the shop has met its own folders, and ours were found beside them
    assert bill.read_text(encoding="utf-8").splitlines() == [
        "the store of the shop",
        "the workers of the shop",
        "the tests of the shop",
        "7",
    ]
    assert run(rmq, "store", "verify", "queue", cwd=shop) == ""
    where = "import rmqclient.store, rmqclient.workers, store; print(rmqclient.__file__, store.NAME, sep='\\n')"
    file, name = run(str(environment / "bin" / "python"), "-c", where, cwd=shop).splitlines()
    assert file.startswith(str(environment))
    assert name == "the store of the shop"


ORDERS = """
from pathlib import Path

import store
import tests
import workers

from rmqclient import App

app = App("queue")

@app.handler("orders", group="billing")
def bill(order: bytes) -> None:
    draft = Path("bill.draft")
    draft.write_text("\\n".join([store.NAME, workers.NAME, tests.NAME, order.decode()]))
    draft.rename("bill")
"""

WAIT = """
import pathlib, sys, time
end = time.monotonic() + 60
while not pathlib.Path(sys.argv[1]).exists():
    if time.monotonic() > end:
        sys.exit("no handler has run")
    time.sleep(0.05)
"""
