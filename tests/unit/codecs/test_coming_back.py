"""What a send takes the handler gets back equal, whatever its annotation is; or the send raises."""

# Annotations are drawn, and models take their fields by aliases: neither is anything for a type checker.
# mypy: disable-error-code="call-arg, arg-type, valid-type"

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
import uuid
from contextlib import suppress
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.alias_generators import to_camel

from rmqclient.calling.arguments import arguments_of
from rmqclient.codecs import encode_body
from rmqclient.errors import HandlerError, MessageRejected
from tests.support.received import received
from tests.support.sweeps import share_of

Given = tuple[Any, Any]
"""An annotation, and a value that it describes."""


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.StrEnum):
    S = "s"
    QUOTED = '"s"'
    NULL = "null"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Place:
    _id: int
    x: float
    name: str | None = None


@dataclasses.dataclass(frozen=True)
class Route:
    stops: tuple[Place, ...]
    at: dt.datetime
    by: dict[uuid.UUID, decimal.Decimal] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(eq=False)
class Mark:
    text: str
    raw: bytes = b""


class Line(msgspec.Struct, rename="camel", tag="line"):
    item_name: str
    colors: set[Color] = msgspec.field(default_factory=set)
    prices: list[float] = []


class Camel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(alias_generator=to_camel)
    order_id: int
    price: float = 0.0


class Named(pydantic.BaseModel):
    amount: int = pydantic.Field(serialization_alias="written")
    other: str = pydantic.Field(default="", exclude=True)


class Total(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    net: float
    items: pydantic.Json[list[int]]
    base: Camel | None = None

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def gross(self) -> float:
        return self.net * 1.19


class Derived(Camel):
    extra: int = 0


class Secret(pydantic.BaseModel):
    token: pydantic.SecretStr


@dataclasses.dataclass
class Holder:
    inner: Camel


class Shape(TypedDict):
    at: dt.date
    size: Size


class Pair(NamedTuple):
    left: int
    right: str


T = TypeVar("T")


@dataclasses.dataclass
class Box(Generic[T]):
    inside: T


ZONES = st.sampled_from(
    [dt.UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kathmandu"), dt.timezone(-dt.timedelta(hours=3))]
)
FLOATS = st.floats()
TEXTS = st.text(st.characters(), max_size=6) | st.sampled_from(["null", "1", '"a"', "", "\ud800", "a\0\x01"])
TIMES = st.datetimes(timezones=st.none() | ZONES)
CAMELS = st.builds(lambda n, x: Camel(orderId=n, price=x), st.integers(), FLOATS)
DERIVED = st.builds(lambda n: Derived(orderId=n, extra=n), st.integers())
PLACES = st.builds(Place, st.integers(), FLOATS, st.none() | TEXTS)
TOTALS = st.builds(
    lambda net, items, base: Total(net=net, items=repr(items), base=base),
    FLOATS, st.lists(st.integers()), st.none() | CAMELS | DERIVED,
)  # fmt: skip


def of(annotation: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Given]:
    return values.map(lambda value: (annotation, value))


RATES = st.dictionaries(st.uuids(), st.decimals(), max_size=2)
LEAVES: list[st.SearchStrategy[Given]] = [
    of(bool, st.booleans()),
    of(int, st.integers()),
    of(float, FLOATS),
    of(str, TEXTS),
    of(bytes, st.binary(max_size=6)),
    of(bytearray, st.binary(max_size=6).map(bytearray)),
    of(dt.datetime, TIMES),
    of(dt.date, st.dates()),
    of(dt.time, st.times(timezones=st.none() | ZONES)),
    of(dt.timedelta, st.timedeltas()),
    of(decimal.Decimal, st.decimals()),
    of(uuid.UUID, st.uuids()),
    of(Color, st.sampled_from(Color)),
    of(Size, st.sampled_from(Size)),
    of(Level, st.sampled_from(Level)),
    of(Literal["a", "b"], st.sampled_from(["a", "b"])),
    of(Annotated[int, "a number"], st.integers()),
    of(Place, PLACES),
    of(Route, st.builds(Route, st.lists(PLACES, max_size=2).map(tuple), TIMES, RATES)),
    of(Mark, st.builds(Mark, TEXTS, st.binary(max_size=4))),
    of(Line, st.builds(Line, TEXTS, st.sets(st.sampled_from(Color)), st.lists(FLOATS, max_size=3))),
    of(Camel, CAMELS),
    of(Derived, DERIVED),
    of(Named, st.builds(Named, amount=st.integers(), other=TEXTS)),
    of(Total, TOTALS),
    of(Secret, st.builds(Secret, token=TEXTS)),
    of(Holder, st.builds(Holder, CAMELS | DERIVED)),
    of(Shape, st.fixed_dictionaries({"at": st.dates(), "size": st.sampled_from(Size)})),
    of(Pair, st.builds(Pair, st.integers(), TEXTS)),
    of(Box[dt.date], st.builds(Box, st.dates())),
    of(type(None), st.none()),
]  # fmt: skip
KEYS: list[st.SearchStrategy[Given]] = LEAVES[:4] + LEAVES[6:7] + LEAVES[7:8] + LEAVES[11:15]


@st.composite
def described(draw: st.DrawFn, depth: int = 2) -> Given:
    """An annotation, and a value of it."""
    kind = draw(st.sampled_from(["leaf", "list", "set", "tuple", "dict", "optional"])) if depth else "leaf"
    annotation, value = draw(st.one_of(LEAVES) if kind == "leaf" else described(depth - 1))
    if kind == "list":
        return list[annotation], [value] * draw(st.integers(0, 2))
    if kind == "optional":
        return annotation | None if not isinstance(annotation, str) else annotation, draw(
            st.sampled_from([value, None])
        )
    if kind == "tuple":
        other, second = draw(st.one_of(LEAVES))
        return tuple[annotation, other], (value, second)
    if kind == "set":
        element, one = draw(st.one_of(KEYS))
        return set[element], {one}
    if kind == "dict":
        key_type, key = draw(st.one_of(KEYS))
        return dict[key_type, annotation], {key: value}
    return annotation, value


def is_same(value: Any, back: Any) -> bool:
    """Whether two values are equal: times are by their instant, NaN equals NaN."""
    if dataclasses.is_dataclass(value) and type(value) is type(back):
        return all(is_same(getattr(value, f.name), getattr(back, f.name)) for f in dataclasses.fields(value))
    if isinstance(value, (list, tuple)) and type(value) is type(back):
        return len(value) == len(back) and all(map(is_same, value, back))
    if isinstance(value, dict) and type(value) is type(back):
        return len(value) == len(back) and all(is_same([*value.items()], [*back.items()]) for _ in "x")
    if isinstance(value, dt.datetime) and value.tzinfo and back.tzinfo:
        return bool(value.astimezone(dt.UTC) == back.astimezone(dt.UTC))
    if isinstance(value, (float, decimal.Decimal)) and math.isnan(value):
        return math.isnan(back)
    return bool(value == back)


def handler_of(annotation: Any) -> Any:
    def handle(body: Any) -> None: ...

    handle.__annotations__["body"] = annotation
    return handle


@pytest.mark.guarantee("G98")
@pytest.mark.sweep
@settings(max_examples=share_of(2000))
@given(described())
def test_what_is_sent_comes_back_equal_or_is_refused(case: Given) -> None:
    annotation, value = case
    with suppress(HandlerError, MessageRejected):  # no handler has this annotation, or the send raises
        decode = arguments_of(handler_of(annotation)).decode
        back = decode(received(encode_body(value)))
        assert is_same(value, back)


@pytest.mark.guarantee("G98")
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Camel, Camel(orderId=7)),
        (list[Camel], [Camel(orderId=7)]),
        (Named, Named(amount=7)),
        (Total, Total(net=1, items="[1]")),
        (Place, Place(_id=5, x=1.5)),
        (Holder, Holder(Camel(orderId=7))),
        (Size, Size.S),
        (str, Size.S),
        (dict[uuid.UUID, int], {uuid.UUID(int=1): 2}),
        (tuple[Camel, bytes], (Camel(orderId=7), b"\xff")),
        (Box[dt.date], Box(dt.date(2026, 1, 1))),
    ],
    ids=str,
)
def test_a_value_comes_back_equal(annotation: Any, value: Any) -> None:
    assert arguments_of(handler_of(annotation)).decode(received(encode_body(value))) == value


@pytest.mark.guarantee("G98")
@pytest.mark.parametrize(
    ("value", "part"),
    [
        (math.nan, "it is nan"),
        ({"a": [1.0, -math.inf]}, "['a'][1] is -inf"),
        (Place(_id=1, x=math.nan), ".x is nan"),
        ([decimal.Decimal("NaN")], "[0] is"),
        (Secret(token="t"), ".token is"),
        (Total(net=1, items="[]", base=Derived(orderId=1)), ".base is"),
        ([Place(_id="one", x=1.0)], "[0] is stored as"),
        ({1: "a", "1": "b"}, "keys of several types"),
        ({None: 1}, "`key`"),
        (dt.datetime(1800, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")), "1800"),
    ],
    ids=str,
)
def test_what_would_come_back_changed_is_refused_and_the_part_is_named(value: object, part: str) -> None:
    with pytest.raises(MessageRejected) as refused:
        encode_body(value)
    assert part in str(refused.value)


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN"])
def test_a_decimal_that_is_no_number_is_refused_wherever_it_is(number: str) -> None:
    for value in (
        [Noted(decimal.Decimal(number))],
        Noted({"a": decimal.Decimal(number)}),
        Priced(decimal.Decimal(number)),
    ):
        with pytest.raises(MessageRejected, match=r"\.(note|price)"):
            encode_body(value)
    assert encode_body(Priced(decimal.Decimal(1), "Infinity"))


@dataclasses.dataclass
class Priced:
    price: decimal.Decimal
    name: str = ""


class Sealed(pydantic.BaseModel):
    number: int = 1
    seal: bytes


class Crate(pydantic.BaseModel):
    sealed: list[Sealed]


@dataclasses.dataclass
class Noted:
    note: object


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (Sealed(seal=b"\xff"), ".seal"),
        ([Sealed(seal=b"\xff")], "[0].seal"),
        (Crate(sealed=[Sealed(seal=b"a"), Sealed(seal=b"\xff")]), ".sealed[1].seal"),
        (Noted("\ud800"), ".note"),
        ({"a": [1, "\ud800"]}, "['a'][1]"),
        (Noted({"a": object()}), ".note['a']"),
    ],
)
def test_what_cannot_be_encoded_is_refused_by_the_name_of_the_part(value: object, part: str) -> None:
    with pytest.raises(MessageRejected) as told:
        encode_body(value)
    assert f": {part}: " in str(told.value)
