"""Arguments: what a handler gets for each of its parameters, by annotation.

=============================================  ====================================================================
a parameter                                    gets
=============================================  ====================================================================
annotated ``ReceivedMessage``                  the message
annotated ``Annotated[..., Depends(f)]``       what ``f`` makes (:mod:`rmqclient.calling.dependencies`)
annotated with any other type                  the body, decoded into it; one parameter at most
without an annotation, ``object``, ``Any``     the message; the same parameter
by keyword, with a default                     its default
=============================================  ====================================================================

A batch handler gets a list of the messages, ``list[ReceivedMessage]``, and a list of bodies, such as ``list[Order]``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from rmqclient.calling.dependencies import (
    AsyncValues,
    Dependency,
    Depends,
    Function,
    Part,
    Values,
    check_sync,
    replaced,
)
from rmqclient.codecs import Decoder, annotation_of, decoder_of, element_of, is_plain, message_itself, without_alias
from rmqclient.errors import HandlerError
from rmqclient.handler import check_ran, is_async, is_async_generator, is_generator
from rmqclient.message import ReceivedMessage
from rmqclient.names import function_name

_EXPECTED = "write it as `def handle(message)`, `def handle(order: Order, message: ReceivedMessage)`, or with `async`"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Arguments:
    """What one function gets."""

    function: Function
    body: int | None
    """Its place among the parts that gets the body; None when no parameter asks for it."""
    decode: Decoder
    """From one message to its body, or to the message itself when no parameter asks for a body."""
    parts: tuple[Part, ...]
    """Every argument in order; that of the body stands for the message."""

    @property
    def dependencies(self) -> list[Dependency]:
        """What its parameters depend on, those of dependencies included."""
        return [each for part in self.parts if part.needed is not None for each in part.needed.everything]

    def invoker(self) -> Callable[[Any, Any], Any]:
        """Return a function that calls the handler with (message, body), or with (messages, bodies) of a batch.

        It is ``async`` when the handler is. Raises HandlerError if the handler is not, and needs what is.
        """
        function, parts, at = self.function, self.parts, self.body
        if all(part.needed is None and part.keyword is None for part in parts):
            if len(parts) == 1:
                return _only_message(function) if at is None else _only_body(function)
            if len(parts) == 2 and at is not None:
                return _both(function, body_first=at == 0)
        if is_async(function):
            return self._async_invoker()
        for dependency in self.dependencies:
            check_sync(dependency, function)

        def invoke(given: object, body: object) -> object:
            with ExitStack() as stack:
                places, names = Values(given, stack).of(parts)
                if at is not None:
                    places[at] = body
                result = function(*places, **names)
                check_ran(result)
                return result
            return None  # a dependency swallowed the exception

        return invoke

    def _async_invoker(self) -> Callable[[Any, Any], Any]:
        function, parts, at = self.function, self.parts, self.body

        async def invoke(given: object, body: object) -> object:
            async with AsyncExitStack() as stack:
                places, names = await AsyncValues(given, stack).of(parts)
                if at is not None:
                    places[at] = body
                return await function(*places, **names)
            return None  # a dependency swallowed the exception

        return invoke


def arguments_of(
    function: Function, *, is_batch: bool = False, overrides: Mapping[Function, Function] | None = None
) -> Arguments:
    """Return what the parameters of ``function`` ask for.

    ``overrides`` names functions that take the places of dependencies. Raises HandlerError for parameters that nothing
    is known for, for an annotation that cannot be resolved, and for one that no body can be decoded into.
    """
    parts: list[Part] = []
    body, annotation = None, Any
    for parameter in _wanted(function):
        found = annotation_of(function, parameter)
        depends = _depends(found)
        if depends is not None:
            parts.append(_part(parameter, dependency_of(depends, overrides or {}, (), is_batch=is_batch)))
        elif _is_message(found, is_batch=is_batch):
            parts.append(_part(parameter, None))
        elif body is None and parameter.kind in _POSITIONAL:
            body, annotation = len(parts), found
            parts.append(_part(parameter, None))
        else:
            raise _refused(function, f"nothing is known for its parameter {parameter.name!r}")
    if all(part.needed is not None for part in parts):
        raise _refused(function, "it takes neither the message nor its body")
    if body is None:
        return Arguments(function, None, message_itself, tuple(parts))
    try:
        decode = decoder_of(element_of(annotation) if is_batch else annotation)
    except HandlerError as error:
        raise HandlerError(f"handler {function_name(function)}: {error}") from error
    return Arguments(function, body, decode, tuple(parts))


def dependency_of(
    depends: Depends, overrides: Mapping[Function, Function], above: tuple[Function, ...], *, is_batch: bool
) -> Dependency:
    """Return a dependency with all that it needs; ``above`` are the functions that need it.

    Raises HandlerError for a parameter that nothing is known for, and for functions that need each other.
    """
    function = replaced(depends.function, overrides)
    if function in above:
        circle = " -> ".join(function_name(each) for each in (*above[above.index(function) :], function))
        raise HandlerError(f"these dependencies need each other: {circle}")
    parts = []
    for parameter in _parameters_of(function):
        found = annotation_of(function, parameter)
        nested = _depends(found)
        if nested is not None:
            needed = dependency_of(nested, overrides, (*above, function), is_batch=is_batch)
            parts.append(Part(_keyword(parameter), needed))
        elif _is_message(found, is_batch=is_batch):
            parts.append(Part(_keyword(parameter), None))
        elif parameter.default is _EMPTY and parameter.kind not in (_VAR_POSITIONAL, _VAR_KEYWORD):
            raise HandlerError(
                f"dependency {function_name(function)}: nothing is known for its parameter {parameter.name!r}: "
                "annotate it with ReceivedMessage or Annotated[..., Depends(function)], or give it a default"
            )
    return Dependency(function, depends.cached, tuple(parts))


def check_function(function: object, *, is_batch: bool = False) -> None:
    """Raise HandlerError unless ``function`` can be a handler.

    What has a name that is not defined yet passes: :func:`arguments_of` resolves it when the module is whole.
    """
    if not callable(function):
        raise HandlerError(f"{function!r} is not a function: {_EXPECTED}")
    name = function_name(function)
    if is_generator(function) or is_async_generator(function):
        raise HandlerError(f"handler {name} contains `yield`, so calling it would run nothing of it: {_EXPECTED}")
    bodies = messages = 0
    body: Any = None
    for parameter in _wanted(function):
        try:
            found = annotation_of(function, parameter)
        except HandlerError:
            return
        if _depends(found) is None:
            is_message = _is_message(found, is_batch=False) or _is_message(found, is_batch=True)
            messages, bodies = messages + is_message, bodies + (not is_message)
            body = body if is_message else found
            if not is_message and (bodies > 1 or parameter.kind not in _POSITIONAL):
                raise _refused(function, f"nothing is known for its parameter {parameter.name!r}")
    if not bodies + messages:
        raise _refused(function, "it takes neither the message nor its body")
    if is_plain(body) and not is_batch:
        return  # who only sends need not wait until msgspec is imported
    try:
        arguments_of(function, is_batch=is_batch)
    except HandlerError as error:
        if not _is_undefined(error):
            raise


def _is_undefined(error: BaseException | None) -> bool:
    """Tell whether an error comes from a name that a later line of the module may define."""
    while error is not None:
        if isinstance(error, NameError) or getattr(error, "code", None) == "class-not-fully-defined":  # pydantic's
            return True
        error = error.__cause__
    return False


def annotations_of(function: Function) -> dict[str, Any]:
    """Return the resolved annotations of a handler's or a dependency's parameters, by name. Raises HandlerError."""
    return {
        parameter.name: annotation_of(function, parameter)
        for parameter in _parameters_of(function)
        if parameter.annotation is not _EMPTY
    }


def dependencies_of(function: Function) -> list[Function]:
    """Return the functions that a handler or a dependency needs, in any depth. Raises HandlerError."""
    found: list[Function] = []
    for annotation in annotations_of(function).values():
        depends = _depends(annotation)
        if depends is not None:
            found += [depends.function, *dependencies_of(depends.function)]
    return found


_VAR_POSITIONAL, _VAR_KEYWORD = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


def _wanted(function: Function) -> list[inspect.Parameter]:
    """Return the parameters that a handler must get a value for. Raises HandlerError for those that none can have."""
    parameters = _parameters_of(function)
    wanted = []
    for number, parameter in enumerate(parameters):
        if parameter.kind is _VAR_POSITIONAL:
            raise _refused(function, f"nothing is known for its parameter *{parameter.name}")
        if parameter.kind is _VAR_KEYWORD or (parameter.kind not in _POSITIONAL and parameter.default is not _EMPTY):
            continue
        if number and parameter.default is not _EMPTY:
            raise _refused(function, f"its parameter {parameter.name!r} has a default: put it behind a `*`")
        wanted.append(parameter)
    return wanted


def _parameters_of(function: Function) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise HandlerError(f"{function_name(function)} does not tell its parameters: {_EXPECTED}") from error


def _depends(annotation: Any) -> Depends | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((each for each in get_args(annotation)[1:] if isinstance(each, Depends)), None)


def _is_message(annotation: Any, *, is_batch: bool) -> bool:
    plain = without_alias(annotation)
    if not is_batch:
        return plain is ReceivedMessage
    return get_origin(plain) in (list, Sequence) and get_args(plain) == (ReceivedMessage,)


def _part(parameter: inspect.Parameter, needed: Dependency | None) -> Part:
    return Part(None if parameter.kind in _POSITIONAL else parameter.name, needed)


def _keyword(parameter: inspect.Parameter) -> str | None:
    """Return the name by which a dependency gets an argument: one before it may be left out."""
    return None if parameter.kind is inspect.Parameter.POSITIONAL_ONLY else parameter.name


def _refused(function: Function, why: str) -> HandlerError:
    shown = f"{function_name(function)}{inspect.signature(function)}"
    return HandlerError(
        f"handler {shown}: {why}. A handler takes the message or its body, or both, and Annotated[..., Depends(f)]: "
        f"{_EXPECTED}"
    )


def _only_body(function: Function) -> Callable[[Any, Any], Any]:
    return lambda _given, body: function(body)


def _only_message(function: Function) -> Callable[[Any, Any], Any]:
    return lambda given, _body: function(given)


def _both(function: Function, *, body_first: bool) -> Callable[[Any, Any], Any]:
    return (lambda given, body: function(body, given)) if body_first else function
