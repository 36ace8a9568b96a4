"""Codecs: turn the body that an application gives into bytes, and bytes into the value that a handler asks for.

=============================  ====================================  ==================================================
given to ``Message``           stored                                type of a handler's parameter that gets it back
=============================  ====================================  ==================================================
bytes, bytearray, memoryview   the same bytes                        ``bytes``, ``bytearray``, ``memoryview``
str                            UTF-8                                 ``str``
msgspec.Struct                 JSON                                  that class
pydantic model                 JSON                                  that class
dataclass, dict, list, int...  JSON                                  that type, or TypedDict, ``list[Order]``, ...
=============================  ====================================  ==================================================

A parameter without an annotation, or annotated with ReceivedMessage, ``object`` or ``Any``, gets the message itself.

The first body that needs orjson or msgspec imports it. pydantic is used only if the application has imported it. A body
cannot run code here: neither pickle nor dill is used.
"""

# ruff: noqa: PLC0415 - orjson and msgspec are imported where they are needed, for the reason above

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType, MethodType, SimpleNamespace
from typing import Annotated, Any, NewType, get_args, get_origin, get_type_hints

from rmqclient.errors import BodyDoesNotFit, HandlerError, QueueError
from rmqclient.message import Message, ReceivedMessage
from rmqclient.store.errors import MessageRejected

Decoder = Callable[[ReceivedMessage], object]


def encode_body(value: object) -> bytes:
    """Return the bytes to store for ``value``.

    JSON lacks NaN and infinity: they are stored as ``null``. Sets and named tuples become arrays, and bytes inside
    other values become base64.

    Raises MessageRejected, which names the type, if the value cannot be encoded.
    """
    if isinstance(value, bytes):
        return bytes(value)
    return _encoded_by(_encode, value)


def encode_json(value: object) -> bytes:
    """Return the JSON of ``value``, also of bytes and ``str``; else as :func:`encode_body`. Raises MessageRejected."""
    return _encoded_by(_encode_json, value)


def encoded(message: Message) -> Message:
    """Return a message with its body as bytes. Raises MessageRejected."""
    return message if type(message.body) is bytes else message.with_body(encode_body(message.body), 0)


def decoder_of(annotation: Any) -> Decoder:
    """Return a decoder from a message to the value that a parameter with this annotation gets.

    The decoder raises BodyDoesNotFit for a body that does not fit, whichever program sent it; reading the body may
    raise BodyUnreadable and NotInstalled before.

    Raises HandlerError, which names the annotation, if a body cannot be decoded into it.
    """
    plain = without_alias(annotation)
    for kind, decode in _WITHOUT_JSON:
        if plain is kind:
            return decode
    try:
        return _fitting(_json_decoder(annotation, plain))
    except HandlerError:
        raise
    except Exception as error:
        raise HandlerError(_cannot_decode(annotation, str(error))) from error


def element_of(annotation: Any) -> Any:
    """Return the type of the elements of ``annotation``, the list that a batch handler takes; Any if it does not say.

    Raises HandlerError for any annotation except a list.
    """
    plain = without_alias(annotation)
    if any(plain is kind for kind in (Any, object, list, Sequence)):
        return Any
    if get_origin(plain) not in (list, Sequence):
        raise HandlerError(
            f"the annotation {annotation!r} of a batch handler's parameter is not a list: write list[ReceivedMessage], "
            "list[bytes], list[Order] or the like, or leave batch out"
        )
    (element,) = get_args(plain)
    return element


def value_decoder_for(kind: Any) -> Callable[[bytes], object]:
    """Return a decoder from the bytes of a body to a value of type ``kind``; Any stands for whatever the JSON holds.

    The decoder raises ValueError, msgspec.DecodeError, pydantic.ValidationError or RecursionError. Raises HandlerError
    if no body can be decoded into ``kind``.
    """
    plain = without_alias(kind)
    for each, convert in _AS_THEY_STAND:
        if plain is each:
            return convert
    try:
        return _json_decoder(kind, plain)
    except Exception as error:
        raise HandlerError(
            f"value_type={kind!r}: no body can be decoded into it; use bytes, str, Any, or a dataclass, TypedDict, "
            "msgspec.Struct or pydantic model"
        ) from error


def message_itself(message: ReceivedMessage) -> object:
    """Return ``message``: the decoder of a handler that takes the message itself."""
    return message


def annotation_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the annotation of a parameter of ``function``, resolved; ``Any`` if it lacks one.

    Names are looked up where the function was defined and among the variables that it captured. ReceivedMessage is
    found even if it is imported for type checkers only.

    Raises HandlerError, which names the annotation, if a name in it is not defined.
    """
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return Any
    try:
        return _resolved(function, annotation)
    except Exception as error:
        raise HandlerError(
            f"the annotation {annotation!r} of the handler's parameter cannot be resolved: {error}; "
            "define or import the type at the top of the module"
        ) from error


def returned_by(function: Callable[..., Any]) -> Any:
    """Return what a function says it returns, or the class if it is one; ``Any`` if it does not say, or not clearly."""
    if isinstance(function, type):
        return function
    inner = python_function(function)
    annotation = Any if inner is None else inner.__annotations__.get("return", Any)
    if annotation is Any or annotation is object:
        return Any
    try:
        return _resolved(function, annotation)
    except Exception:  # noqa: BLE001 - a name that only type checkers know says nothing here
        return Any


def without_alias(annotation: Any) -> Any:
    """Return the type that ``Annotated`` and ``NewType`` stand for."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = annotation.__origin__
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        else:
            return annotation


def python_function(function: Callable[..., Any]) -> FunctionType | None:
    """Return the Python function inside decorators, ``partial``, methods and callable objects, or None."""
    seen: Any = function
    for _ in range(100):
        if isinstance(seen, partial):
            seen = seen.func
        elif isinstance(seen, MethodType):
            seen = seen.__func__
        elif hasattr(seen, "__wrapped__"):
            seen = seen.__wrapped__
        elif isinstance(seen, FunctionType):
            return seen
        else:
            seen = type(seen).__call__
    return None


def _encoded_by(encode: Callable[[object], bytes], value: object) -> bytes:
    try:
        return encode(value)
    except Exception as error:
        kind = type(value)
        raise MessageRejected(
            f"a body of type {kind.__module__}.{kind.__qualname__} cannot be encoded: {error}; "
            "give bytes, str, or a value that JSON can hold"
        ) from error


def _encode(value: object) -> bytes:
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return str.encode(value) if isinstance(value, str) else _encode_json(value)


def _encode_json(value: object) -> bytes:
    if (msgspec := sys.modules.get("msgspec")) is not None and isinstance(value, msgspec.Struct):
        encoded: bytes = msgspec.json.encode(value, enc_hook=_plainer)
        return encoded
    if _is_model(value):
        text: str = value.model_dump_json()  # type: ignore[attr-defined]
        return text.encode()
    return _encode_with_orjson(value)


def _encode_with_orjson(value: object) -> bytes:
    import orjson

    options = orjson.OPT_SERIALIZE_NUMPY
    try:
        return orjson.dumps(value, default=_plainer, option=options)
    except orjson.JSONEncodeError:
        # Keys that are not str: the option costs 50 % for every dict, so only the values that need it pay for it.
        return orjson.dumps(value, default=_plainer, option=options | orjson.OPT_NON_STR_KEYS)


def _plainer(value: object) -> object:
    """Return a value of a type that orjson lacks one step closer to JSON. Raises TypeError."""
    import msgspec

    return value.model_dump(mode="json") if _is_model(value) else msgspec.to_builtins(value)  # type: ignore[attr-defined]


def _is_model(value: object) -> bool:
    pydantic: Any = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def _json_decoder(annotation: Any, plain: Any) -> Callable[[bytes], object]:
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is None or not _mentions_pydantic(annotation):
        return _msgspec_decoder(annotation)
    decode: Callable[[bytes], object]
    if isinstance(plain, type) and issubclass(plain, pydantic.BaseModel):
        decode = plain.model_validate_json  # type: ignore[attr-defined]
    else:
        decode = pydantic.TypeAdapter(annotation).validate_json
    return decode


def _mentions_pydantic(annotation: Any) -> bool:
    """Return whether ``annotation`` has a pydantic model or dataclass, as in ``list[Order]`` or ``Order | None``."""
    return hasattr(annotation, "__pydantic_validator__") or any(map(_mentions_pydantic, get_args(annotation)))


def _msgspec_decoder(annotation: Any) -> Callable[[bytes], object]:
    import msgspec
    import msgspec.inspect

    decoder = msgspec.json.Decoder(annotation)
    info = msgspec.inspect.type_info(annotation)
    if isinstance(info, msgspec.inspect.CustomType):
        raise HandlerError(_cannot_decode(annotation, "a class without declared fields"))
    part = _undecodable(info, set())
    if part is not None:
        kind = f"{part.__module__}.{part.__qualname__}"
        raise HandlerError(_cannot_decode(annotation, f"it needs a {kind}, and no JSON becomes one inside of it"))
    return decoder.decode


def _undecodable(info: Any, seen: set[int]) -> type | None:
    """Return a class that each body must have a value of and no JSON value becomes; None when there is no such class.

    ``info`` is what msgspec knows of a type, ``seen`` has the ids of what was looked at: types may hold themselves. A
    class that has JSON's own values among its instances, such as numbers.Number, takes them as they are.
    """
    import msgspec.inspect

    if id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        return None if any(issubclass(each, info.cls) for each in _OF_JSON) else info.cls
    return next((found for part in _parts(info) if (found := _undecodable(part, seen)) is not None), None)


def _parts(info: Any) -> list[Any]:
    """Return what msgspec knows of the types inside a type; a field that may be left out says nothing."""
    fields = [each.type for each in getattr(info, "fields", ()) if each.required]
    named = [getattr(info, name) for name in ("type", "item_type", "key_type", "value_type") if hasattr(info, name)]
    return [*fields, *named, *getattr(info, "item_types", ()), *getattr(info, "types", ())]


def _fitting(decode: Callable[[bytes], object]) -> Decoder:
    """Return a decoder of messages that raises BodyDoesNotFit for a body that ``decode`` cannot take."""

    def decode_message(message: ReceivedMessage) -> object:
        try:
            return decode(message.body)
        except (QueueError, MemoryError):  # the body could not be read, which may be mended
            raise
        except Exception as error:
            raise BodyDoesNotFit(
                f"the body of {len(message.body)} bytes does not fit what the handler takes: "
                f"{type(error).__module__}.{type(error).__qualname__}: {error}"
            ) from error

    return decode_message


def _resolved(function: Callable[..., Any], annotation: Any) -> Any:
    holder = SimpleNamespace(__annotations__={"payload": annotation})
    return get_type_hints(holder, _names_seen_by(function), include_extras=True)["payload"]


def _names_seen_by(function: Callable[..., Any]) -> dict[str, Any]:
    names: dict[str, Any] = {"ReceivedMessage": ReceivedMessage, "rmqclient": sys.modules["rmqclient"]}
    inner = python_function(function)
    if inner is not None:
        names |= inner.__globals__
        for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True):
            try:
                names[name] = cell.cell_contents
            except ValueError:  # a variable that the enclosing function has not set yet
                continue
    return names


def _cannot_decode(annotation: Any, reason: str) -> str:
    return (
        f"no body can be decoded into the annotation {annotation!r} of the handler's parameter: {reason}; "
        "use ReceivedMessage, bytes, str, a dataclass, TypedDict, msgspec.Struct or pydantic model"
    )


_OF_JSON = (dict, list, str, int, float, bool, type(None))
"""The classes of what JSON can hold."""

_AS_THEY_STAND: tuple[tuple[Any, Callable[[bytes], object]], ...] = (
    (bytes, bytes),
    (bytearray, bytearray),
    (memoryview, memoryview),
    (str, bytes.decode),
)

_WITHOUT_JSON: tuple[tuple[Any, Decoder], ...] = (
    (Any, message_itself),
    (object, message_itself),
    (ReceivedMessage, message_itself),
    (bytes, lambda message: message.body),
    (bytearray, lambda message: bytearray(message.body)),
    (memoryview, lambda message: memoryview(message.body)),
    (str, _fitting(bytes.decode)),
)
"""Annotations compared by identity, because an annotation may be unhashable."""
