"""Copies of applications that cannot be imported: what arrives, and what is refused with its name."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import dill
import msgspec
import pydantic
import pytest

from rmqclient import App, Depends, Producer, ReceivedMessage
from rmqclient.calling.arguments import annotations_of
from rmqclient.consuming.copies import CopiedApp
from rmqclient.errors import HandlerError
from rmqclient.tables.table import Table

REPOSITORY = Path(__file__).parents[3]


@dataclasses.dataclass
class Order:
    count: int


class Till:
    def __init__(self, rate: int) -> None:
        self.rate = rate

    def take(self, order: Order) -> int:
        return order.count * self.rate

    def __call__(self, order: Order) -> int:
        return -self.take(order)


def add(order: Order, more: int) -> int:
    return order.count + more


def doubled(order: Order) -> int:
    return 2 * order.count


def app_of(*functions: Callable[..., Any]) -> App:
    app = App("store")
    for number, function in enumerate(functions):
        app.handler(f"topic-{number}", group="billing")(function)
    return app


def copy_of(app: App) -> App:
    copied: App = CopiedApp.of(app).load()
    return copied


def refusal(*functions: Callable[..., Any]) -> str:
    with pytest.raises(HandlerError) as refused:
        CopiedApp.of(app_of(*functions))
    return str(refused.value)


# --- what arrives ----------------------------------------------------------------------------------------------

SCRIPT = """
from __future__ import annotations
import dataclasses, functools, logging, sys, types, typing
import msgspec
from rmqclient import App, Depends, ReceivedMessage, RetryPolicy
from rmqclient.consuming.copies import CopiedApp

RATE = 3
LOG = logging.getLogger(__name__)
app = App("store")

@dataclasses.dataclass
class Order:
    count: int

@dataclasses.dataclass
class Bill:
    total: int

class Hopeless(Exception): pass

def factorial(number):
    return 1 if number < 2 else number * factorial(number - 1)

def priced(order):
    LOG.debug("an order")
    assert isinstance(order, Order)
    return Bill(order.count * RATE)

def customer(message: ReceivedMessage) -> Order:
    return Order(5)

@app.handler("orders", group="billing", retry=RetryPolicy(max_retries=7, dead_letter_on=(Hopeless, KeyError)))
def handle(order: Order, customer: typing.Annotated[Order, Depends(customer)]):
    if order.count < 0:
        raise Hopeless(order)
    return priced(order).total + len(app.handlers) + factorial(3), type(customer) is Order

prices = app.table("prices")

@app.handler("prices", group="billing")
def look_up(message: ReceivedMessage):
    return prices._tables is app.tables

sys.stdout.buffer.write(CopiedApp.of(app).values)
"""

LOAD = """
import json, sys
from rmqclient.calling.arguments import annotations_of
from rmqclient.consuming.copies import CopiedApp
from rmqclient.failures.retry import Outcome

app = CopiedApp(sys.stdin.buffer.read()).load()
handler = app.handlers[0]
order, customer = annotations_of(handler.function).values()
try:
    handler.function(order(-1), order(1))
except Exception as error:
    outcome = handler.retry.outcome(1, error)
needed = customer.__metadata__[0].function(None)
print(json.dumps([handler.function(order(2), needed), outcome is Outcome.DEAD_LETTER, app.handlers[1].function(None)]))
"""


@pytest.mark.parametrize("is_file", [True, False], ids=["script", "prompt"])
def test_handlers_of_the_main_module_arrive_with_its_classes_exceptions_globals_and_tables(
    tmp_path: Path, is_file: bool
) -> None:
    # Given a main module, with a file or typed in; its annotations are text, and no code of the handler names the class
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    values = python(str(script) if is_file else "-", b"" if is_file else SCRIPT.encode())

    # When a fresh process loads the copy
    found = json.loads(python("-c", values, LOAD))

    # Then all of it is there, and what its parts had in common is one
    assert found == [[2 * 3 + 2 + 6, True], True, True]


def python(argument: str, given: bytes, *more: str) -> bytes:
    command = [sys.executable, argument, *more]
    done = subprocess.run(
        command,
        input=given,
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    return done.stdout


def test_methods_partials_callable_objects_and_closures_are_copied_and_what_has_a_name_goes_by_it() -> None:
    rate = 3

    def priced(order: Order) -> int:
        return order.count * rate

    functions: list[Callable[..., Any]] = [
        Till(3).take,
        Till(3),
        partial(add, more=5),
        priced,
        lambda order: order.count,
        doubled,
    ]
    copied = [handler.function for handler in copy_of(app_of(*functions)).handlers]
    assert [each(Order(2)) for each in copied] == [6, -6, 7, 6, 2, 4]
    assert copied[3] is not priced
    assert copied[5] is doubled


def test_schedules_hooks_and_settings_are_copied_and_share_what_handlers_capture() -> None:
    calls: list[bytes] = []
    app = app_of(calls.append)
    app.schedule("0 6 * * 1", topic="reports", name="count", timezone="Europe/Berlin")(lambda: f"{len(calls)}")
    app.on_startup(lambda: calls.append(b"begun"))
    copied = copy_of(app)
    copied.hooks.of("startup")[0]()
    made = copied.crons[0].message(datetime(2026, 11, 23, 5, tzinfo=UTC))
    assert made is not None
    assert made.body == b"1"
    assert calls == []
    assert copied.root == app.root


def test_a_module_goes_by_its_name_whatever_stands_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_copied.py").write_text("import threading\nlock = threading.Lock()\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import shop_copied  # type: ignore[import-not-found]  # noqa: PLC0415 - it was made just now

    copied = copy_of(app_of(lambda _: shop_copied.lock, lambda _: shop_copied))
    assert [each.function(None) for each in copied.handlers] == [shop_copied.lock, shop_copied]


def test_memory_that_looks_like_a_file_is_copied() -> None:
    binary, text = io.BytesIO(b"ab"), io.StringIO("cd")
    (handler,) = copy_of(app_of(lambda _: (binary.read(), text.read()))).handlers
    assert handler.function(None) == (b"ab", "cd")


class ImportedStruct(msgspec.Struct):
    count: int


class ImportedModel(pydantic.BaseModel):
    count: int


def test_payload_classes_that_can_be_imported_go_by_name() -> None:
    def with_struct(order: ImportedStruct) -> int:
        return order.count

    def with_model(order: ImportedModel) -> int:
        return order.count

    copied = copy_of(app_of(with_struct, with_model)).handlers
    assert [annotations_of(each.function) for each in copied] == [{"order": ImportedStruct}, {"order": ImportedModel}]


def test_a_large_variable_is_warned_of_by_name() -> None:
    table, small = os.urandom(2_000_000), b"small"

    def handle(message: bytes) -> bool:
        return message in (table, small)

    with pytest.warns(UserWarning, match=r"the largest variable is 'table' with 2,000,\d\d\d"):
        CopiedApp.of(app_of(add_nothing, handle))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CopiedApp.of(app_of(lambda _: small))


def add_nothing(message: bytes) -> None: ...


# --- what is refused -------------------------------------------------------------------------------------------


@pytest.fixture
def resources(tmp_path: Path) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        binary = stack.enter_context((tmp_path / "file").open("w+b"))
        yield {
            "lock": threading.Lock(),
            "reentrant lock": threading.RLock(),
            "event": threading.Event(),
            "open file": binary,
            "text file": stack.enter_context((tmp_path / "file").open()),
            "temporary file": stack.enter_context(tempfile.NamedTemporaryFile()),
            "standard output": sys.__stdout__,
            "socket": stack.enter_context(socket.socket()),
            "producer": stack.enter_context(Producer(tmp_path / "store")),
            "table": stack.enter_context(Table(tmp_path / "store", "prices")),
            "generator": (number for number in range(3)),
            "nested lock": {"deep": [(threading.Lock(),)]},
        }


@pytest.mark.parametrize(
    "name",
    [
        "lock", "reentrant lock", "event", "open file", "text file", "temporary file", "standard output", "socket",
        "producer", "table", "generator", "nested lock",
    ],
)  # fmt: skip
def test_what_cannot_be_copied_is_refused_by_the_handler_and_its_variable(resources: dict[str, Any], name: str) -> None:
    resource = resources[name]

    def uses_it() -> object:
        return resource

    def handle(message: bytes) -> object:
        return uses_it()

    text = refusal(add_nothing, handle)
    assert "handle cannot be copied" in text
    assert "'resource'" in text
    assert "Make it in a lifespan" in text


def test_it_is_refused_wherever_it_is_held() -> None:
    lock = threading.Lock()

    class Holder:
        def __init__(self, guard: Any) -> None:
            self.guard = guard

        def handle(self, message: bytes) -> None: ...

    def with_lock(message: bytes, guard: Any) -> None: ...
    def with_default(message: bytes, *, guard: Any = lock) -> None: ...

    for function in (Holder(threading.Lock()).handle, partial(with_lock, guard=threading.Lock()), with_default):
        assert "'guard': a lock" in refusal(function)


@pytest.mark.parametrize("library", ["msgspec", "pydantic"])
def test_a_class_that_dill_cannot_build_again_is_refused_by_its_handler(library: str) -> None:
    class Struct(msgspec.Struct):
        count: int

    class Model(pydantic.BaseModel):
        count: int

    def with_struct(order: Annotated[Struct, 1]) -> None: ...
    def with_model(order: Annotated[Model, 1]) -> None: ...

    function, kind = (with_struct, Struct) if library == "msgspec" else (with_model, Model)
    function.__annotations__["order"] = kind
    assert f"{function.__name__} cannot be copied" in refusal(function)
    assert f"the class {kind.__qualname__} of {library}" in refusal(function)


def test_what_a_dependency_needs_is_refused_by_its_name() -> None:
    class Model(pydantic.BaseModel):
        count: int

    def customer(message: ReceivedMessage) -> Model:
        return Model(count=1)

    def handle(order: bytes, customer: object) -> None: ...

    handle.__annotations__["customer"] = Annotated[object, Depends(customer)]
    assert f"the class {Model.__qualname__} of pydantic" in refusal(handle)


def test_functions_that_call_each_other_are_refused() -> None:
    def is_odd(number: int) -> bool:
        return number != 0 and is_even(number - 1)

    def is_even(number: int) -> bool:
        return number == 0 or is_odd(number - 1)

    assert "functions that call each other" in refusal(lambda _: is_odd(3))


def test_a_refusal_leaves_the_settings_of_dill_as_they_were() -> None:
    before = dict(dill.settings)
    lock = threading.Lock()
    refusal(lambda _: lock)
    assert dill.settings == before
