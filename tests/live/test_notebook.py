"""Handlers in a real IPython kernel, whose cells are run by a client as Jupyter does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.host.notebooks import Kernel, started_kernel
from tests.workers.supervised import eventually, rmq

pytest.importorskip("jupyter_client.manager", reason="a kernel needs ipykernel: pip install ipykernel")
pytest.importorskip("ipykernel", reason="pip install ipykernel")

APP = """
from rmqclient import App, StoreConfig
app = App("./store", config=StoreConfig.small())
done = []
"""

FIRST = """
@app.handler("orders", group="billing")
def bill(order: str) -> None:
    done.append(("first", order))
"""

SECOND = FIRST.replace('"first"', '"second"')

FAILING = """
@app.handler("orders", group="billing")
def bill(order: str) -> None:
    raise ValueError("<no> such customer")
"""

SEND = """
with app.producer() as producer:
    producer.send("orders", "{}")
"""

WAIT = """
import time
until = time.monotonic() + 30
while len(done) < {0} and time.monotonic() < until:
    time.sleep(0.01)
done
"""


IN_WORKERS = """
import dataclasses, os, time
from pathlib import Path
from rmqclient import App, StoreConfig

app = App("./workers-store", config=StoreConfig.small())
rate = 3

@dataclasses.dataclass
class Order:
    count: int
"""

HANDLER = """
@app.handler("orders", group="billing")
def bill(order: Order) -> None:
    with Path("billed").open("a") as file:
        file.write(f"{os.getpid()} {order.count * rate}\\n")
    while order.count > 10 and not Path("go").exists():
        time.sleep(0.02)

def billed() -> list[list[int]]:
    text = Path("billed").read_text() if Path("billed").exists() else ""
    return [[int(word) for word in line.split()] for line in text.splitlines()]

def wait_for(what):
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)
"""

KILLED = """
import signal

with app.workers(processes=2), app.producer() as producer:
    producer.send("orders", {"count": 2})
    wait_for(billed)
    first = billed()[0][0]
    os.kill(first, signal.SIGKILL)
    for _ in range(20):
        producer.send("orders", {"count": 4})
    wait_for(lambda: len([1 for _, total in billed() if total == 12]) >= 20)
first != os.getpid(), {total for _, total in billed()}, {pid for pid, _ in billed()} == {os.getpid()}
"""

INTERRUPTED = """
with app.workers(processes=1), app.producer() as producer:
    producer.send("orders", {"count": 11})
    time.sleep(1000)
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def kernel(directory: Path) -> Iterator[Kernel]:
    with started_kernel(directory) as running:
        yield running


@pytest.mark.slow
def test_cells_that_are_run_again_replace_their_handlers_and_the_view_follows(kernel: Kernel) -> None:
    # Given an application whose view is the output of a cell
    for cell in (APP, FIRST, FIRST):
        kernel.run(cell)
    shown = kernel.shown("app.run_in_notebook()")
    assert "<td>bill</td><td>billing</td><td>0</td><td>0</td>" in shown["text/html"]
    assert "orders -> bill (billing)  handled 0, failed 0" in shown["text/plain"]

    # When a message is handled, then the view says so
    kernel.run(SEND.format("one"))
    kernel.updated(lambda view: "<td>billing</td><td>1</td><td>0</td>" in view)
    assert kernel.run("done") == "[('first', 'one')]"

    # When the cell of the handler is run again with other code, then the next message meets it, also in the same cell
    kernel.run(SECOND + SEND.format("two"))
    assert kernel.run(WAIT.format(2)) == "[('first', 'one'), ('second', 'two')]"

    # When a handler fails, then the view has its traceback, with every character as text
    kernel.run(FAILING + SEND.format("three"))
    view = kernel.updated(lambda view: "Traceback" in view)
    assert "ValueError: &lt;no&gt; such customer" in view

    # When the application itself is made anew and run, then it takes the place of the first
    for cell in (APP, SECOND, "live = app.run_in_notebook()", SEND.format("four")):
        kernel.run(cell)
    assert kernel.run(WAIT.format(1)) == "[('second', 'four')]"
    assert kernel.run("import threading; sum(each.name == 'rmq-coordinator' for each in threading.enumerate())") == "1"

    # And it can be stopped
    assert kernel.run("live.stop(), live.is_running") == "(0, False)"


@pytest.mark.slow
def test_other_things_that_a_cell_registers_take_the_place_of_the_first_too(kernel: Kernel) -> None:
    kernel.run(APP)
    for _ in range(2):
        kernel.run("@app.schedule('* * * * *', topic='reports')\ndef report(): ...")
        kernel.run("@app.middleware\ndef timed(call):\n    yield")
    assert kernel.run("len(app.crons), len(app.hooks.registered)") == "(1, 1)"


@pytest.mark.slow
@pytest.mark.guarantee("G125")
def test_handlers_of_cells_run_in_workers_that_are_started_again_and_an_interrupt_ends_them(
    kernel: Kernel, directory: Path
) -> None:
    # Given handlers, classes and variables of cells
    for cell in (IN_WORKERS, HANDLER, HANDLER):
        kernel.run(cell)

    # When a worker is killed, then the messages are handled all the same, and not by the kernel
    assert kernel.run(KILLED) == "(True, {6, 12}, False)"

    # When a cell is interrupted while a handler works, then its message finishes before the cell ends
    (directory / "billed").unlink()
    kernel.begin(INTERRUPTED)
    eventually((directory / "billed").exists, "a message in its handler")
    kernel.interrupt()
    store = str(directory / "workers-store")
    eventually(lambda: "draining" in rmq("worker", "ls", "--store", store), "a worker that takes no more messages")
    (directory / "go").touch()
    assert kernel.ended() == "KeyboardInterrupt"
    assert int(rmq("group", "ls", "--store", store, "-o", "json", "--query", "sum([].lag)")) == 0


def test_a_script_that_defines_a_handler_twice_still_learns_of_it() -> None:
    from rmqclient import App  # noqa: PLC0415 - the name would be taken for one of the cells above
    from rmqclient.errors import HandlerError  # noqa: PLC0415 - the same

    app = App("./store")

    def bill(order: bytes) -> None: ...

    app.handler("orders", "billing")(bill)
    with pytest.raises(HandlerError, match="already handled for group"):
        app.handler("orders", "billing")(bill)
