"""Decoding: from the bytes of a body to what an annotation asks for."""

# ruff: noqa: PLC0415 - msgspec is imported where it is needed: who only sends bytes never needs it

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from enum import Enum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from rmqclient.codecs.annotations import without_alias
from rmqclient.errors import BodyDoesNotFit, HandlerError, QueueError
from rmqclient.message import ReceivedMessage

Decoder = Callable[[ReceivedMessage], object]


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
        return _fitting(_body_decoder(annotation))
    except HandlerError:
        raise
    except Exception as error:
        raise HandlerError(_cannot_decode(annotation, str(error))) from error


def is_plain(annotation: Any) -> bool:
    """Tell whether a body can surely be decoded into an annotation: one of Python's own types, without elements."""
    return any(annotation is each for each in (*_OF_JSON, *_AS_BYTES))


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
        return _body_decoder(kind)
    except Exception as error:
        raise HandlerError(
            f"value_type={kind!r}: no body can be decoded into it; use bytes, str, Any, or a dataclass, TypedDict, "
            "msgspec.Struct or pydantic model"
        ) from error


def json_decoder_for(kind: Any) -> Callable[[bytes], object]:
    """Return a decoder from JSON, also of a text, to a value of type ``kind``. Raises what makes that impossible."""
    return _json_decoder(kind, without_alias(kind))


def message_itself(message: ReceivedMessage) -> object:
    """Return ``message``: the decoder of a handler that takes the message itself."""
    return message


def _body_decoder(annotation: Any) -> Callable[[bytes], object]:
    """Return a decoder of bodies: JSON, or a text as it stands. Raises HandlerError for what may be either."""
    plain = without_alias(annotation)
    decode = _json_decoder(annotation, plain)
    alternatives = _alternatives(plain)
    texts = {each.value if isinstance(each, Enum) else each: each for each in alternatives if isinstance(each, str)}
    others = [each for each in alternatives if not isinstance(each, str)]
    if (len(others) > 1 and any(each in _AS_BYTES for each in others)) or (others and any(map(_is_json, texts))):
        raise HandlerError(
            _cannot_decode(
                annotation, "bytes and texts are stored as they stand, so that a body does not tell which type it has"
            )
        )
    if not texts:
        return decode

    def decode_text(body: bytes) -> object:
        found = texts.get(bytes(body).decode())
        return decode(body) if found is None else found

    return decode_text


def _is_json(text: str) -> bool:
    import msgspec

    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return False
    return True


def _alternatives(annotation: Any) -> list[Any]:
    """Return what a body of this annotation may be: types, and the values of a Literal or an enumeration of texts."""
    plain = without_alias(annotation)
    if get_origin(plain) in (Union, UnionType):
        return [found for part in get_args(plain) for found in _alternatives(part)]
    if get_origin(plain) is Literal:
        return list(get_args(plain))
    if isinstance(plain, type) and issubclass(plain, Enum) and issubclass(plain, str):
        return list(plain)
    return [plain]


def _json_decoder(annotation: Any, plain: Any) -> Callable[[bytes], object]:
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is None or not _mentions_pydantic(annotation):
        return _msgspec_decoder(annotation)
    decode: Callable[[bytes], object]
    if isinstance(plain, type) and issubclass(plain, pydantic.BaseModel):
        decode = plain.model_validate_json  # type: ignore[attr-defined]
    else:
        decode = _adapter(pydantic, annotation).validate_json
    return decode


def _adapter(pydantic: Any, annotation: Any) -> Any:
    """Return what decodes models inside other types, and bytes beside them from base64, as msgspec does."""
    try:
        return pydantic.TypeAdapter(annotation, config=pydantic.ConfigDict(val_json_bytes="base64"))
    except pydantic.errors.PydanticUserError:  # a class with a configuration of its own
        return pydantic.TypeAdapter(annotation)


def _mentions_pydantic(annotation: Any, seen: tuple[Any, ...] = ()) -> bool:
    """Return whether ``annotation`` has a pydantic model or dataclass, as in ``list[Order]`` or in a field."""
    if hasattr(annotation, "__pydantic_validator__"):
        return True
    if any(annotation is each for each in seen):
        return False
    inside = get_args(annotation)
    if isinstance(annotation, type) and (dataclasses.is_dataclass(annotation) or is_typeddict(annotation)):
        try:
            inside += tuple(get_type_hints(annotation, include_extras=True).values())
        except Exception:  # noqa: BLE001 - a name that cannot be found: the decoder says so
            return False
    return any(_mentions_pydantic(each, (*seen, annotation)) for each in inside)


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
    if isinstance(info, msgspec.inspect.DictType) and isinstance(info.key_type, msgspec.inspect.UnionType):
        raise TypeError(f"keys of several types, {info.key_type.types}, are all texts in JSON")
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


def _cannot_decode(annotation: Any, reason: str) -> str:
    return (
        f"no body can be decoded into the annotation {annotation!r} of the handler's parameter: {reason}; "
        "use ReceivedMessage, bytes, str, a dataclass, TypedDict, msgspec.Struct or pydantic model"
    )


_OF_JSON = (dict, list, str, int, float, bool, type(None))
"""The classes of what JSON can hold."""

_AS_BYTES = (bytes, bytearray, memoryview, str, Any, object)
"""Types whose bodies are not JSON. A body of the last two may be anything."""

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
