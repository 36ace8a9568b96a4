"""Handlers reach a fresh process by name or as a copy, or are refused by the variable that is in the way."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import io
import json
import logging
import mmap
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any

import msgspec
import multiprocess
import pydantic
import pytest

from rmqclient import Producer
from rmqclient.app import App
from rmqclient.backend.local import store_of
from rmqclient.errors import HandlerError
from rmqclient.failures.retry import Outcome, RetryPolicy
from rmqclient.workers import handler_transfer
from rmqclient.workers.handler_transfer import captured, load, load_all, reference, transfer
from tests.support import transferred
from tests.support.transferred import Answer, answers

REPOSITORY = Path(handler_transfer.__file__).parents[2]
LOG = logging.getLogger(__name__)


@dataclasses.dataclass
class Order:
    count: int


def app_of(*functions: Callable[..., Any]) -> App:
    app = App("store")
    for number, function in enumerate(functions):
        app.handler(f"topic-{number}", group="billing", tags="paid", threads=2)(function)
    return app


class Refused(Exception):
    pass


def values(answered: list[Answer]) -> list[Any]:
    return [each.value for each in answered]


def priced_by(rate: int) -> Callable[[Order], tuple[bool, int]]:
    def handle(order: Order) -> tuple[bool, int]:
        LOG.debug("an order for %d", order.count)
        return isinstance(order, Order), order.count * rate

    return handle


def counting(calls: list[bytes]) -> Callable[[bytes], int]:
    def handle(body: bytes) -> int:
        calls.append(body)
        return len(calls)

    return handle


class Till:
    def __init__(self, rate: int) -> None:
        self.rate = rate

    def take(self, order: Order) -> int:
        return order.count * self.rate

    def __call__(self, order: Order) -> int:
        return -self.take(order)


def add(order: Order, more: int) -> int:
    return order.count + more


def twice(function: Callable[[Order], int]) -> Callable[[Order], int]:
    @wraps(function)
    def call(order: Order) -> int:
        return 2 * function(order)

    return call


# --- handlers that arrive ----------------------------------------------------------------------------------------


def test_a_handler_that_can_be_imported_goes_by_name() -> None:
    # Given a function of a module, and a class method
    packed = transfer(app_of(transferred.remember, transferred.Shop.serve))
    assert [each.reference for each in packed.parcels] == [
        "tests.support.transferred:remember",
        "tests.support.transferred:Shop.serve",
    ]
    assert packed.values == b""

    # When a fresh process loads and calls them
    answered = answers(packed, b"body")

    # Then it used its own import of the module
    assert values(answered) == [("tests.support.transferred", b"body"), ("Shop", b"body")]
    assert answered[0].pid != os.getpid()


def test_a_closure_goes_by_value() -> None:
    packed = transfer(app_of(priced_by(3)))
    assert [each.reference for each in packed.parcels] == [None]
    assert values(answers(packed, b'{"count": 2}')) == [(True, 6)]


def test_both_kinds_travel_together_in_order_with_what_they_were_registered_with() -> None:
    answered = answers(transfer(app_of(priced_by(3), transferred.remember, priced_by(5))), b'{"count": 2}')

    assert values(answered) == [(True, 6), ("tests.support.transferred", b'{"count": 2}'), (True, 10)]
    assert [each.topic for each in answered] == ["topic-0", "topic-1", "topic-2"]
    assert {(each.group, each.tags, each.threads) for each in answered} == {("billing", "paid", 2)}


def test_methods_partials_decorated_functions_and_callable_objects_arrive() -> None:
    def plus_one(order: Order) -> int:
        return order.count + 1

    functions: list[Callable[..., Any]] = [
        Till(3).take,
        Till(3),
        partial(add, more=5),
        twice(plus_one),
        lambda message: message.body,
    ]
    assert values(answers(transfer(app_of(*functions)), b'{"count": 2}')) == [6, -6, 7, 6, b'{"count": 2}']


def test_copies_of_one_transfer_share_what_they_captured_together() -> None:
    calls: list[bytes] = []
    packed = transfer(app_of(counting(calls), counting(calls)))
    assert values(answers(packed, b"x")) == [1, 2]
    assert calls == []


def test_handlers_can_be_given_without_their_app() -> None:
    handlers = app_of(transferred.remember).handlers
    assert load(transfer(handlers)) == handlers
    assert load(transfer([])) == []


def test_schedules_travel_with_the_handlers_and_share_what_they_captured() -> None:
    calls: list[bytes] = []
    app = app_of(counting(calls))
    app.schedule("* * * * *", topic="reports")(transferred.report)
    app.schedule("0 6 * * 1", topic="reports", name="count", timezone="Europe/Berlin")(lambda: f"{len(calls)}")
    packed = transfer(app)
    assert [each.reference for each in packed.crons] == ["tests.support.transferred:report", None]
    (handler,), crons = load_all(pickle.loads(pickle.dumps(packed)))
    assert crons[0] == app.crons[0]
    assert dataclasses.replace(crons[1], function=app.crons[1].function) == app.crons[1]
    handler.function(b"x")
    made = crons[1].message(datetime(2026, 11, 23, 5, tzinfo=UTC))
    assert made is not None
    assert made.body == b"1"
    assert calls == []


def test_a_transfer_can_be_pickled() -> None:
    packed = transfer(app_of(priced_by(3), transferred.remember))
    assert pickle.loads(pickle.dumps(packed)) == packed


MAIN = """
from __future__ import annotations
import dataclasses, json, sys
from rmqclient import App
from rmqclient.workers.handler_transfer import transfer
from tests.support.transferred import answers

RATE = 3
app = App("store")

@dataclasses.dataclass
class Order:
    count: int

@dataclasses.dataclass
class Bill:
    total: int

def priced(order):
    assert isinstance(order, Order)
    return Bill(order.count * RATE)

@app.handler("orders", group="billing")
def handle(order: Order):
    return priced(order).total + len(app.handlers)

packed = transfer(app)
print(json.dumps([packed.parcels[0].reference, answers(packed, b'{"count": 2}')[0].value]))
"""


@pytest.mark.parametrize("by_file", [True, False], ids=["script", "notebook"])
def test_a_handler_of_the_main_module_arrives_with_its_classes_and_globals(tmp_path: Path, by_file: bool) -> None:
    # Given a main module, with a file or typed in; its annotations are text, and no code of the handler names the class
    script = tmp_path / "script.py"
    script.write_text(MAIN)
    printed = subprocess.run(
        [sys.executable, str(script) if by_file else "-"],
        input=None if by_file else MAIN,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    ).stdout
    assert json.loads(printed) == [None, 7]


# --- by name or not ----------------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], types.ModuleType]]:
    made: list[str] = []

    def make(text: str) -> types.ModuleType:
        name = f"module_{tmp_path.name}".replace("-", "_").replace("[", "_").replace("]", "_")
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        made.append(name)
        return importlib.import_module(name)

    yield make
    for name in made:
        sys.modules.pop(name, None)


def test_a_name_that_leads_to_another_object_is_no_reference(module: Callable[[str], types.ModuleType]) -> None:
    replaced = module("def handle(message): ...\nfirst = handle\ndef handle(message): ...\n")
    assert reference(replaced.first) is None
    assert reference(replaced.handle) == f"{replaced.__name__}:handle"


def test_a_module_that_only_this_process_has_is_no_reference_and_its_functions_are_refused(
    module: Callable[[str], types.ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here_only = module("def handle(message): ...\n")
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(tmp_path)])

    assert reference(here_only.handle) is None
    with pytest.raises(HandlerError, match=r"\.handle of a module that no other process can import"):
        transfer(app_of(here_only.handle))


def test_a_name_that_is_gone_when_it_is_loaded_is_told(module: Callable[[str], types.ModuleType]) -> None:
    changing = module("def handle(message): ...\n")
    packed = transfer(app_of(changing.handle))
    del changing.handle
    with pytest.raises(HandlerError, match=":handle does not exist in this process"):
        load(packed)


def test_another_python_refuses_a_transfer() -> None:
    packed = dataclasses.replace(transfer(app_of(priced_by(3))), python="cpython-399")
    with pytest.raises(HandlerError, match=f"come from cpython-399 and this is {sys.implementation.cache_tag}"):
        answers(packed, b"{}")


# --- what is captured --------------------------------------------------------------------------------------------


def test_what_a_copy_takes_along_is_told_by_name() -> None:
    rate, order = 3, Order(4)

    def helper(order: Order) -> int:
        return order.count * rate

    def handle(order: Order, *, more: int = 5) -> int:
        return sum(helper(each) for each in (order,)) + more + add(order, json.loads("1"))

    # Functions that are copied are looked through; "json" travels by name, and "order" not at all
    assert captured(handle) == {"helper": helper, "rate": rate, "more": 5, "add": add}
    assert captured(Till(7).take) == captured(Till(7)) == {"self.rate": 7}
    assert captured(partial(handle, order)).keys() == {"argument 0 of partial", "helper", "rate", "more", "add"}


def test_what_can_be_imported_takes_nothing_along() -> None:
    assert captured(transferred.remember) == {}


def test_a_large_captured_variable_is_warned_of_by_name() -> None:
    table, small = os.urandom(2_000_000), b"small"

    def handle(message: bytes) -> bool:
        return message in (table, small)

    with pytest.warns(UserWarning, match=r"'table' of handler .*handle with 2,000,\d\d\d: load it inside") as warned:
        transfer(app_of(transferred.remember, handle))
    assert len(warned) == 1
    assert warned[0].filename == __file__


def test_what_is_not_large_is_not_warned_of() -> None:
    table = os.urandom(1_000_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transfer(app_of(lambda _: table))


# --- handlers that are refused -----------------------------------------------------------------------------------


@pytest.fixture
def resources(tmp_path: Path) -> Iterator[dict[str, Any]]:
    (tmp_path / "file").write_bytes(b"content")
    with (
        (tmp_path / "file").open("r+b") as binary,
        (tmp_path / "file").open() as text,
        tempfile.NamedTemporaryFile() as temporary,
        socket.socket() as endpoint,
        mmap.mmap(binary.fileno(), 0) as mapping,
        Producer(tmp_path / "store") as producer,
    ):
        yield {
            "lock": threading.Lock(),
            "reentrant lock": threading.RLock(),
            "condition": threading.Condition(),
            "event": threading.Event(),
            "process lock": multiprocess.get_context("spawn").Lock(),
            "asyncio lock": asyncio.Lock(),
            "binary file": binary,
            "text file": text,
            "temporary file": temporary,
            "standard output": sys.__stdout__,
            "socket": endpoint,
            "mmap": mapping,
            "producer": producer,
            "store": store_of(producer._backend, "a test"),
            "kernel mapping": store_of(producer._backend, "a test").state.mapping,
            "nested lock": {"deep": [(threading.Lock(),)]},
        }


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("lock", "a lock"),
        ("reentrant lock", "a lock"),
        ("condition", "a lock"),
        ("event", "a lock"),
        ("process lock", "a lock"),
        ("asyncio lock", "a lock or queue of asyncio"),
        ("binary file", "an open file"),
        ("text file", "an open file"),
        ("temporary file", "an open file"),
        ("standard output", "an open file"),
        ("socket", "a socket"),
        ("mmap", "a mapping of a file"),
        ("producer", "a Producer"),
        ("store", "an open store"),
        ("kernel mapping", "a mapping of a store's file"),
        ("nested lock", "a lock"),
    ],
)
def test_a_captured_resource_is_refused_by_the_name_of_its_variable(
    resources: dict[str, Any], name: str, what: str
) -> None:
    resource = resources[name]

    def uses_it() -> object:
        return resource

    def handle(message: bytes) -> object:
        return uses_it()

    with pytest.raises(HandlerError, match=f"handle captures 'resource', and so {what}.*Make it inside the handler"):
        transfer(app_of(handle))


def test_a_resource_is_refused_wherever_it_is_held() -> None:
    lock = threading.Lock()

    class Holder:
        def __init__(self) -> None:
            self.guard = lock

        def handle(self, message: bytes) -> None: ...

    def with_lock(message: bytes, guard: Any) -> None: ...
    def with_default(message: bytes, *, guard: Any = lock) -> None: ...

    for function, name in (
        (Holder().handle, "self.guard"),
        (partial(with_lock, guard=lock), "guard"),
        (with_default, "guard"),
    ):
        with pytest.raises(HandlerError, match=f"captures '{name}', and so a lock"):
            transfer(app_of(function))


def test_a_global_of_an_importable_module_counts_once_it_would_be_copied(
    module: Callable[[str], types.ModuleType],
) -> None:
    # Given a module with a global lock
    shop = module(
        "import threading\n"
        "lock = threading.Lock()\n"
        "def make():\n"
        "    def handle(message):\n"
        "        with lock: return message\n"
        "    return handle\n"
        "def handle(message):\n"
        "    with lock: return message\n"
    )
    # Then its function, which every process imports with a lock of its own, is fine
    assert values(answers(transfer(app_of(shop.handle)), b"")) != []

    # But a closure would take a copy of the lock along
    with pytest.raises(HandlerError, match="captures 'lock', and so a lock"):
        transfer(app_of(shop.make()))


def test_memory_that_looks_like_a_file_is_copied() -> None:
    binary, text = io.BytesIO(b"ab"), io.StringIO("cd")
    assert values(answers(transfer(app_of(lambda _: (binary.read(), text.read()))), b"")) == [(b"ab", "cd")]


@pytest.mark.parametrize(
    ("definition", "what"),
    [
        ("import msgspec\nclass Order(msgspec.Struct):\n    count: int\n", "and so a msgspec.Struct class"),
        ("import pydantic\nclass Order(pydantic.BaseModel):\n    count: int\n", "and so a pydantic model"),
        ("class Order:\n    count: int\nOrder.first = Order\n", "of which no copy can be made (PicklingWarning"),
    ],
    ids=["msgspec", "pydantic", "itself"],
)
def test_a_payload_class_that_dill_cannot_rebuild_is_refused_before_a_worker_fails_on_it(
    definition: str, what: str
) -> None:
    script = (
        f"{definition}\n"
        "from rmqclient import App\n"
        "from rmqclient.workers.handler_transfer import transfer\n"
        "app = App('store')\n"
        "@app.handler('orders', group='billing')\n"
        "def handle(order: Order): ...\n"
        "transfer(app)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60, cwd=REPOSITORY
    )
    assert f"handler __main__:handle has a parameter annotated with <class '__main__.Order'>, {what}" in (ended.stderr)


class ImportableStruct(msgspec.Struct):
    count: int


class ImportableModel(pydantic.BaseModel):
    count: int


def test_payload_classes_that_can_be_imported_go_by_name() -> None:
    def with_struct(order: ImportableStruct) -> int:
        return ImportableStruct(order.count).count

    def with_model(order: ImportableModel) -> int:
        return ImportableModel(count=order.count).count

    assert values(answers(transfer(app_of(with_struct, with_model)), b'{"count": 2}')) == [2, 2]


def test_functions_that_refer_to_each_other_in_a_circle_are_refused() -> None:
    def is_odd(number: int) -> bool:
        return number != 0 and is_even(number - 1)

    def is_even(number: int) -> bool:
        return number == 0 or is_odd(number - 1)

    with pytest.raises(HandlerError, match="dill cannot follow functions that refer to each other"):
        transfer(app_of(lambda _: is_odd(3)))


def test_what_no_copy_can_be_made_of_is_refused_with_the_reason() -> None:
    numbers = (number for number in range(3))
    with pytest.raises(HandlerError, match=r"captures 'numbers', of which no copy can be made .*generator"):
        transfer(app_of(lambda _: next(numbers)))


def test_an_annotation_that_cannot_be_resolved_is_refused() -> None:
    def handle(order: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(HandlerError, match="annotation 'Missing'"):
        transfer(app_of(handle))


def test_a_refusal_leaves_the_settings_of_dill_as_they_were() -> None:
    import dill  # noqa: PLC0415 - the client imports it late, and so does this

    before = dict(dill.settings)
    with pytest.raises(HandlerError):
        transfer(app_of(lambda _: LOCK))
    transfer(app_of(priced_by(3)))
    assert dill.settings == before


LOCK = threading.Lock()


def test_the_exceptions_of_a_policy_travel_by_name() -> None:
    app = App("store")
    policy = RetryPolicy(max_retries=2, retry_on=(Refused, OSError), dead_letter_on=(KeyError,))
    app.handler("t", group="g", retry=policy)(transferred.remember)
    sent = transfer(app)
    assert sent.values == b""
    (handler,) = load(pickle.loads(pickle.dumps(sent)))
    assert handler.retry == policy


def test_an_exception_of_the_main_module_is_the_one_that_the_copied_function_raises(tmp_path: Path) -> None:
    # Given a script whose handler raises an exception of its own, and a policy that names it
    script = tmp_path / "script.py"
    script.write_text(
        """
import pickle, sys
from rmqclient import App, RetryPolicy
from rmqclient.workers.handler_transfer import transfer

class Hopeless(Exception): pass

app = App("store")

@app.handler("t", group="g", retry=RetryPolicy(max_retries=7, dead_letter_on=(Hopeless, KeyError)))
def handle(message):
    raise Hopeless(message)

sys.stdout.buffer.write(pickle.dumps(transfer(app)))
""",
        encoding="utf-8",
    )
    sent = pickle.loads(subprocess.run([sys.executable, str(script)], check=True, capture_output=True).stdout)

    # When another process loads it
    (handler,) = load(sent)
    with pytest.raises(Exception, match="poison") as raised:
        handler.function("poison")

    # Then the policy knows what the handler raises
    assert handler.retry.max_retries == 7
    assert type(raised.value) is handler.retry.dead_letter_on[0]
    assert handler.retry.dead_letter_on[1] is KeyError
    assert handler.retry.outcome(1, raised.value) is Outcome.DEAD_LETTER
