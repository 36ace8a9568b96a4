"""Handlers reach a fresh process by name or as a copy, or are refused by the variable that is in the way."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from rmqclient.errors import HandlerError
from rmqclient.workers.handler_transfer import load, load_all, reference, transfer
from tests.support import transferred
from tests.support.transferred import answers
from tests.unit.client.transferred_handlers import REPOSITORY, Order, Till, add, app_of, priced_by, values


def counting(calls: list[bytes]) -> Callable[[bytes], int]:
    def handle(body: bytes) -> int:
        calls.append(body)
        return len(calls)

    return handle


def twice(function: Callable[[Order], int]) -> Callable[[Order], int]:
    @wraps(function)
    def call(order: Order) -> int:
        return 2 * function(order)

    return call


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
    (handler,), crons, _ = load_all(pickle.loads(pickle.dumps(packed)))
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
