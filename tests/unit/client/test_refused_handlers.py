"""Handlers that cannot go to another process, and what is captured by those that can."""

from __future__ import annotations

import asyncio
import importlib
import io
import json
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
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import multiprocess
import pydantic
import pytest

from rmqclient import Producer
from rmqclient.app import App
from rmqclient.errors import HandlerError
from rmqclient.failures.retry import Outcome, RetryPolicy
from rmqclient.local.backend import store_of
from rmqclient.workers.handler_transfer import captured, load, transfer
from tests.support import transferred
from tests.support.transferred import answers
from tests.unit.client.transferred_handlers import REPOSITORY, Order, Till, add, app_of, priced_by, values


class Refused(Exception):
    pass


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
        (
            "import dataclasses\n@dataclasses.dataclass\nclass Order:\n    count: int\nOrder.first = Order\n",
            "of which no copy can be made (PicklingWarning",
        ),
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
