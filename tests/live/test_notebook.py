"""Handlers in a real IPython kernel, whose cells are run by a client as Jupyter does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

manager = pytest.importorskip("jupyter_client.manager", reason="a kernel needs ipykernel: pip install ipykernel")
pytest.importorskip("ipykernel", reason="pip install ipykernel")

LONG_S = 60.0

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


class Kernel:
    """A kernel in a directory of its own."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, code: str) -> str:
        """Run a cell; return its value as text. Fails with the traceback if the cell raises."""
        values: list[str] = []

        def listen(message: dict[str, Any]) -> None:
            if message["msg_type"] == "execute_result":
                values.append(message["content"]["data"]["text/plain"])

        reply = self._client.execute_interactive(code, timeout=LONG_S, output_hook=listen, store_history=False)
        assert reply["content"]["status"] == "ok", "\n".join(reply["content"].get("traceback", []))
        return values[0] if values else ""

    def shown(self, code: str) -> dict[str, str]:
        """Run a cell, and return what it displays, by kind."""
        found: list[dict[str, str]] = []

        def listen(message: dict[str, Any]) -> None:
            if message["msg_type"] == "display_data":
                found.append(message["content"]["data"])

        self._client.execute_interactive(code, timeout=LONG_S, output_hook=listen)
        return found[0]

    def updated(self, holds: Callable[[str], bool]) -> str:
        """Wait for an update of a view whose text satisfies a condition."""
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            message = self._client.get_iopub_msg(timeout=LONG_S)
            if message["msg_type"] == "update_display_data":
                text = str(message["content"]["data"]["text/html"])
                if holds(text):
                    return text
        raise AssertionError("no such update came")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    directory = tmp_path_factory.mktemp("notebook")
    here = str(Path(__file__).parents[2])
    started, client = manager.start_new_kernel(cwd=str(directory), extra_arguments=["--log-level=ERROR"])
    try:
        running = Kernel(client)
        running.run(f"import sys; sys.path.insert(0, {here!r})")
        yield running
    finally:
        client.stop_channels()
        started.shutdown_kernel(now=True)


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


def test_a_script_that_defines_a_handler_twice_still_learns_of_it() -> None:
    from rmqclient import App  # noqa: PLC0415 - the name would be taken for one of the cells above
    from rmqclient.errors import HandlerError  # noqa: PLC0415 - the same

    app = App("./store")

    def bill(order: bytes) -> None: ...

    app.handler("orders", "billing")(bill)
    with pytest.raises(HandlerError, match="already handled for group"):
        app.handler("orders", "billing")(bill)
