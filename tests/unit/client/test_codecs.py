"""What an application gives as a body comes back as what its handler asks for, or an error says why not."""

from __future__ import annotations

import dataclasses
import datetime
import numbers
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NewType, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqclient
from rmqclient import codecs
from rmqclient.calling.arguments import arguments_of
from rmqclient.codecs import encode_body, message_itself
from rmqclient.errors import BodyDoesNotFit, HandlerError, MessageRejected
from rmqclient.message import ReceivedMessage as Received
from tests.support.received import received

if TYPE_CHECKING:
    from decimal import Decimal

    from rmqclient import ReceivedMessage

REPOSITORY = Path(codecs.__file__).parents[2]


@dataclasses.dataclass
class Order:
    item: str
    count: int = 1


class Line(msgspec.Struct):
    item: str
    count: int = 1


class Model(pydantic.BaseModel):
    item: str
    count: int = 1


class Shape(TypedDict):
    item: str
    count: int


@pydantic.dataclasses.dataclass
class CheckedOrder:
    item: str
    count: int = pydantic.Field(ge=1)


class Point(NamedTuple):
    x: int
    y: int


class Opaque:
    pass


@dataclasses.dataclass
class Drawing:
    file: Path


@dataclasses.dataclass
class Wrapping:
    inner: Model | None


@dataclasses.dataclass
class Sketch:
    size: numbers.Number
    inner: Sketch | None = None
    file: Path | None = None


Text = NewType("Text", str)
OpaqueId = NewType("OpaqueId", Opaque)


def decoded(function: Callable[..., Any], body: bytes) -> object:
    return arguments_of(function).decode(received(body))


def asking_for(annotation: object) -> Callable[..., Any]:
    def handle(payload: Any) -> None: ...

    handle.__annotations__["payload"] = annotation
    return handle


# --- encoding --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (b"\xff\x00", b"\xff\x00"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"abcd")[::2], b"ac"),
        (b"", b""),
        ("größe", "größe".encode()),
        (Order("pen"), b'{"item":"pen","count":1}'),
        (Line("pen"), b'{"item":"pen","count":1}'),
        (Model(item="pen"), b'{"item":"pen","count":1}'),
        (CheckedOrder("pen", 2), b'{"item":"pen","count":2}'),
        ({"a": [1, 2.5, None, True]}, b'{"a":[1,2.5,null,true]}'),
        ([Line("ink"), Model(item="cap")], b'[{"item":"ink","count":1},{"item":"cap","count":1}]'),
        ({1: "one"}, b'{"1":"one"}'),
        ({"set": {7}, "point": Point(1, 2), "bytes": b"ab"}, b'{"set":[7],"point":[1,2],"bytes":"YWI="}'),
        (datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC), b'"2024-02-29T00:00:00+00:00"'),
        (uuid.UUID(int=0), b'"00000000-0000-0000-0000-000000000000"'),
        (5, b"5"),
        (None, b"null"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_is_encoded(value: object, body: bytes) -> None:
    encoded = encode_body(value)
    assert encoded == body
    assert type(encoded) is bytes


def test_bytes_are_stored_without_a_copy() -> None:
    body = b"x" * 1000
    assert encode_body(body) is body


def test_a_struct_may_hold_a_model() -> None:
    class Parcel(msgspec.Struct):
        content: Model

    assert encode_body(Parcel(Model(item="pen"))) == b'{"content":{"item":"pen","count":1}}'


def circular() -> list[object]:
    circle: list[object] = []
    circle.append(circle)
    return circle


class Stubborn(pydantic.BaseModel):
    @pydantic.model_serializer
    def refuse(self) -> str:
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("value", "kind", "problem"),
    [
        (Opaque(), "tests.unit.client.test_codecs.Opaque", "Opaque"),
        ({"inside": Opaque()}, "builtins.dict", "Opaque"),
        (Line(Opaque()), "tests.unit.client.test_codecs.Line", "Opaque"),  # type: ignore[arg-type]
        (circular(), "builtins.list", "Recursion"),
        (1 << 70, "builtins.int", "64-bit"),
        ("\ud800", "builtins.str", "surrogates"),
        (Stubborn(), "tests.unit.client.test_codecs.Stubborn", "not today"),
        (test_bytes_are_stored_without_a_copy, "builtins.function", "function"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_encoded_is_rejected_by_its_type(value: object, kind: str, problem: str) -> None:
    with pytest.raises(MessageRejected, match=f"^a body of type {kind} cannot be encoded") as rejected:
        encode_body(value)
    assert problem in str(rejected.value)


# --- decoding --------------------------------------------------------------------------------------------------


def handle_unannotated(message): ...  # type: ignore[no-untyped-def]
def handle_message(message: Received) -> None: ...
def handle_type_checking_only(message: ReceivedMessage) -> None: ...
def handle_any(message: Any) -> None: ...
def handle_object(message: object) -> None: ...
def handle_qualified(message: rmqclient.ReceivedMessage) -> None: ...


@pytest.mark.parametrize(
    "function",
    [handle_unannotated, handle_message, handle_type_checking_only, handle_any, handle_object, handle_qualified],
)
def test_a_handler_that_asks_for_nothing_else_gets_the_message_itself(function: Callable[..., Any]) -> None:
    message = received(b"x")
    assert arguments_of(function).decode is message_itself
    assert arguments_of(function).decode(message) is message


@pytest.mark.parametrize(
    ("annotation", "body", "value"),
    [
        (bytes, b"\xff", b"\xff"),
        (bytearray, b"\xff", bytearray(b"\xff")),
        pytest.param(memoryview, b"\xff", memoryview(b"\xff"), id="memoryview"),
        (str, "größe".encode(), "größe"),
        (str, b'"quoted"', '"quoted"'),
        (Text, b"text", "text"),
        (Annotated[bytes, "raw"], b"\xff", b"\xff"),
        (Order, b'{"item":"pen","count":2}', Order("pen", 2)),
        (Line, b'{"item":"pen"}', Line("pen")),
        (Model, b'{"item":"pen","count":"2"}', Model(item="pen", count=2)),
        (CheckedOrder, b'{"item":"pen","count":2}', CheckedOrder("pen", 2)),
        (Shape, b'{"item":"pen","count":2}', {"item": "pen", "count": 2}),
        (Annotated[int, msgspec.Meta(ge=0)], b"5", 5),
        (list[Order], b'[{"item":"pen"}]', [Order("pen")]),
        (list[Model], b'[{"item":"pen"}]', [Model(item="pen")]),
        (Wrapping, b'{"inner":{"item":"pen"}}', Wrapping(Model(item="pen"))),
        (Model | None, b"null", None),
        (dict, b'{"a":[1]}', {"a": [1]}),
        (list, b"[1,null]", [1, None]),
        (int, b"5", 5),
        (dict[int, str], b'{"1":"one"}', {1: "one"}),
        (datetime.datetime, b'"2024-02-29T00:00:00Z"', datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC)),
        ("Order | None", b"null", None),
        ("list['Line']", b'[{"item":"ink"}]', [Line("ink")]),
    ],
    ids=str,
)
def test_a_body_is_decoded_into_the_annotation(annotation: object, body: bytes, value: object) -> None:
    found = decoded(asking_for(annotation), body)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("value", [Order("pen", 2), Line("pen", 2), Model(item="pen", count=2), {"a": 1}, "text", b"x"])
def test_what_is_sent_is_what_the_handler_gets(value: object) -> None:
    assert decoded(asking_for(type(value)), encode_body(value)) == value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_any_json_object_comes_back_as_it_was(value: dict[str, Any]) -> None:
    assert decoded(asking_for(dict[str, Any]), encode_body(value)) == value


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@pytest.mark.parametrize("annotation", [str, Order, Line, Model, dict, int, list[Model]], ids=str)
def test_any_body_is_a_value_or_does_not_fit(annotation: object, body: bytes) -> None:
    with suppress(BodyDoesNotFit):
        decoded(asking_for(annotation), body)


@pytest.mark.parametrize("annotation", [Any, list, Order, Line, Model, list[Model], CheckedOrder], ids=str)
def test_json_that_is_nested_too_deeply_does_not_fit(annotation: object) -> None:
    depth = 100_000
    nested = b"[" * depth + b"]" * depth
    asked = dict[str, annotation] if annotation is Any else annotation  # type: ignore[valid-type]
    body = b'{"item":' + nested + b"}"
    with pytest.raises(BodyDoesNotFit):
        decoded(asking_for(asked), nested if annotation is list else body)


def test_every_kind_of_callable_tells_what_it_asks_for() -> None:
    class Service:
        def serve(self, order: Order) -> None: ...
        def __call__(self, order: Order) -> None: ...

    async def serve_async(order: Order) -> None: ...
    def serve_with_rate(order: Order, rate: int) -> None: ...

    @wraps(serve_async)
    def decorated(*args: object) -> None: ...

    for function in (Service().serve, Service(), serve_async, partial(serve_with_rate, rate=3), decorated):
        assert decoded(function, b'{"item":"pen"}') == Order("pen")


def test_a_class_of_the_enclosing_function_is_found_when_the_handler_uses_it() -> None:
    @dataclasses.dataclass
    class Local:
        count: int

    def handle(local: Local) -> bool:
        return isinstance(local, Local)

    assert decoded(handle, b'{"count":3}') == Local(3)


def test_only_the_annotation_of_the_parameter_has_to_be_resolved() -> None:
    def handle(order: Order) -> Decimal:
        raise NotImplementedError

    assert decoded(handle, b'{"item":"pen"}') == Order("pen")


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        ("Missing", "name 'Missing' is not defined"),
        ("Decimal", "name 'Decimal' is not defined"),
        ("list[", "'list['"),
        (Opaque, "a class without declared fields"),
        (OpaqueId, "a class without declared fields"),
        (Order | Line, "Order"),
        (Drawing, "it needs a pathlib"),
        (list[Drawing], "it needs a pathlib"),
        (dict[str, Opaque], "it needs a tests.unit.client.test_codecs.Opaque"),
        (str | None, "as they stand"),
        (bytes | int, "as they stand"),
        (Any | None, "as they stand"),
        (dict[int | str, int], "keys of several types"),
    ],
    ids=str,
)
def test_an_annotation_that_cannot_be_decoded_into_is_named(annotation: object, problem: str) -> None:
    with pytest.raises(HandlerError) as refused:
        arguments_of(asking_for(annotation))
    assert problem in str(refused.value)
    assert repr(annotation) in str(refused.value)


def test_a_part_that_bodies_may_leave_out_or_that_json_can_hold_is_no_problem() -> None:
    def handle(sketch: Sketch) -> None:
        raise NotImplementedError

    assert decoded(handle, b'{"size": 2.5, "inner": {"size": 1}}') == Sketch(2.5, Sketch(1))  # type: ignore[arg-type]


def test_importing_the_client_imports_nothing_that_a_handler_may_never_need() -> None:
    script = """
import sys
import rmqclient.consuming.push_consumer
from rmqclient import App
@App("store").handler("orders", group="billing")
def charge(order: dict): ...
filters = {"jmespath", "rmqclient.filters.body", "rmqclient.filters.sql92"}
print(sorted({*filters, "asyncio", "dill", "msgspec", "multiprocess", "pydantic", "ssl"} & set(sys.modules)))
"""
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60, cwd=REPOSITORY
    ).stdout
    assert printed.strip() == "[]"


def test_importing_a_producer_imports_nothing_of_handlers_tables_traces_or_brokers() -> None:
    script = """
import sys
from rmqclient import Producer
others = {f"rmqclient.{name}" for name in ("handler", "allocation", "failures", "cluster", "remoting", "tables")}
others |= {f"rmqclient.store.{name}" for name in ("observe", "inspect", "wire", "runtime.worker_table")}
print(sorted(others & set(sys.modules)))
"""
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60, cwd=REPOSITORY
    ).stdout
    assert printed.strip() == "[]"


def test_pydantic_is_never_imported_for_an_application_without_it() -> None:
    script = """
import sys
from rmqclient.calling.arguments import arguments_of
from rmqclient.codecs import encode_body
def handle(order: dict): ...
encode_body({"a": 1}), arguments_of(handle).decode
print("pydantic" in sys.modules)
"""
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60, cwd=REPOSITORY
    ).stdout
    assert printed.strip() == "False"
