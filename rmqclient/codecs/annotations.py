"""Annotations: what a function says about its parameters and its result, with its names looked up."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType, MethodType, SimpleNamespace
from typing import Annotated, Any, NewType, get_args, get_origin, get_type_hints

from rmqclient.errors import HandlerError
from rmqclient.message import ReceivedMessage
from rmqclient.names import function_name


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
            f"{function_name(function)}: the annotation {annotation!r} of its parameter {parameter.name!r} cannot be "
            f"resolved: {error}; "
            "define or import the type at the top of the module"
        ) from error


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
