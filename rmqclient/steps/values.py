"""Values: encoding of results.

A handler always gets the decoded result, even in the call that ran the step, so that the first call and one after a
kill see the same. A result is decoded into the type in ``step[Charge](...)``, or else the function's return type, or
else any JSON value. In the last case a value that changes by encoding and decoding, such as a dataclass or a tuple, is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from functools import lru_cache
from types import FunctionType
from typing import Any, NamedTuple

from rmqclient.codecs import (
    encode_body,
    encode_json,
    json_decoder_for,
    python_function,
    returned_by,
    value_decoder_for,
    without_alias,
)
from rmqclient.errors import HandlerError, MessageRejected, StepChanged, StepRejected
from rmqclient.steps.record import Form, Record


class Coding(NamedTuple):
    """The encoding of values of one type."""

    kind: Any
    form: Form | None
    """None: depends on the value."""
    decode: Callable[[bytes], object]

    def encoded(self, what: str, value: object, limit: int) -> tuple[Form, bytes, object]:
        """Return the form, the bytes, and the decoded value. Errors name ``what``.

        Raises StepRejected for a value that changes by encoding, does not fit its type, or is longer than ``limit``
        bytes.
        """
        form = self.form or _form_of(value)
        try:
            if form == "text" and not isinstance(value, str):
                raise TypeError("it is not a str")
            body = encode_json(value) if form == "json" else encode_body(value)
            back = self._decoded(form, body)
        except MessageRejected as error:
            raise StepRejected(f"{what} cannot be stored: {error}") from error
        except Exception as error:
            raise StepRejected(f"{what}, a {_type_name(value)}, does not fit {_name(self.kind)}: {error}") from error
        if len(body) > limit:
            raise StepRejected(
                f"{what} has {len(body):,} bytes, and a message of this store at most {limit:,}: keep it elsewhere, "
                "and return where it is"
            )
        if form == "json" and not _is_same(value, back):
            _check_class_of_parts(what, value, back)
        if self.form is None and not _is_same(value, back):
            raise StepRejected(
                f"{what}, a {_type_name(value)}, would come back as {_short(back)}: name its type, as in "
                "step[Charge](...), annotate what the function returns, or return what JSON can hold"
            )
        return form, body, back

    def decoded(self, what: str, record: Record) -> Any:
        """Return a stored value. Raises StepChanged if it does not fit the type."""
        try:
            return self._decoded(record.form, record.body)
        except Exception as error:
            raise StepChanged(
                f"{what} is stored and does not fit {_name(self.kind)}: {type(error).__name__}: {error}; let the step "
                "take the type that it had, or give it another name for new messages"
            ) from error

    def _decoded(self, form: Form, body: bytes) -> object:
        if self.form is not None and form != self.form:
            raise ValueError(f"it is {form}, not {self.form}")
        if form == "json" or self.form is not None:
            return self.decode(body)
        return body if form == "bytes" else body.decode()


def coding_of(kind: Any) -> Coding:
    """Return the coding of a type. Raises HandlerError for a type that JSON cannot be decoded into."""
    try:
        return _coding_of(kind)
    except TypeError:  # an annotation that cannot be hashed
        return _coding_of.__wrapped__(kind)


def coding_for(function: Callable[..., Any]) -> Coding:
    """Return the coding of a function's results, by its return annotation."""
    inner = python_function(function)
    if isinstance(function, type) or inner is None or "return" not in inner.__annotations__:
        return _quiet(returned_by(function)) if isinstance(function, type) else _ANYTHING
    try:
        key = _what_it_says(inner)
        found = _known.get(key)
    except (TypeError, ValueError):  # an annotation that cannot be hashed, or a variable without a value yet
        return _quiet(returned_by(function))
    if found is None:
        if len(_known) >= _KNOWN_AT_MOST:
            _known.clear()
        found = _known[key] = _quiet(returned_by(function))
    return found


def _what_it_says(function: FunctionType) -> Hashable:
    """Return a key for the return annotation of a function: closures share their code."""
    said = function.__annotations__["return"]
    names = _NAME.findall(said) if isinstance(said, str) else ()
    captured = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return function.__code__, said, tuple([cell.cell_contents for name, cell in captured if name in names])


@lru_cache(maxsize=256)
def _coding_of(kind: Any) -> Coding:
    plain = without_alias(kind)
    if plain is Any or plain is object:
        return _ANYTHING
    form: Form = "bytes" if plain in (bytes, bytearray, memoryview) else "text" if plain is str else "json"
    return Coding(kind, form, _json_decoder_for(kind) if form == "json" else value_decoder_for(kind))


def _quiet(kind: Any) -> Coding:
    try:
        return coding_of(kind)
    except HandlerError:  # JSON does not support the class, so it depends on the value
        return _ANYTHING


def _json_decoder_for(kind: Any) -> Callable[[bytes], object]:
    try:
        return json_decoder_for(kind)
    except Exception as error:
        raise HandlerError(
            f"no result can be decoded into {kind!r}: {error}; use bytes, str, Any, or a dataclass, TypedDict, "
            "msgspec.Struct or pydantic model"
        ) from error


def _from_json(body: bytes) -> object:
    return _any_decoder()(body)


@lru_cache(maxsize=1)
def _any_decoder() -> Callable[[bytes], object]:
    return value_decoder_for(Any)


_ANYTHING = Coding(Any, None, _from_json)
_NAME = re.compile(r"\w+")
_KNOWN_AT_MOST = 1_024
_known: dict[Hashable, Coding] = {}
"""Cache by return annotation; resolving an annotation takes longer than a step."""


def _form_of(value: object) -> Form:
    if type(value) is bytes:
        return "bytes"
    return "text" if type(value) is str else "json"


def _is_same(value: object, back: object) -> bool:
    try:
        return type(value) is type(back) and bool(value == back)
    except Exception:  # noqa: BLE001 - an array, for instance, compares to an array
        return False


def _check_class_of_parts(what: str, value: object, back: object) -> None:
    from rmqclient.codecs.coming_back import part_without_its_class  # noqa: PLC0415 - most results come back equal

    if (lost := part_without_its_class(value, back)) is not None:
        part, kind, base = lost
        raise StepRejected(
            f"{what}{part} is a {kind.__qualname__} and would come back as a {base.__qualname__}, without its own "
            "fields: name the type that it has, as in step[Charge](...)"
        )


def _type_name(value: object) -> str:
    return type(value).__qualname__


def _name(kind: Any) -> str:
    return getattr(kind, "__qualname__", None) or str(kind)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
