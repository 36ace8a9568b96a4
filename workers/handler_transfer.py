"""How handlers reach a worker process: by reference if another process can import them, and otherwise by value.

=============  ==================================  ===================================================================
mode           taken for                           what the worker gets
=============  ==================================  ===================================================================
by reference   what its ``module:qualname`` names  the object of that name in its own import of the module
by value       ``__main__``, notebooks, closures,  a copy, made by dill, of the function and of every global and
               ``partial``, methods                captured variable that it uses; all copies of one transfer share
                                                   what they had in common, but not the rebinding of a global
=============  ==================================  ===================================================================

A copy of a lock is an unrelated lock, and dill makes it silently. So every object on its way into a copy is inspected.
An object that cannot be shared by copying is refused, with the name of the variable that leads to it. Annotations
are resolved before the transfer: dill takes along only the globals that the *code* of a function uses.

A retry policy names exceptions. An exception class of ``__main__`` is copied together with the functions, so that a
copied function raises the class that the policy names.

A transfer carries code. It goes from a supervisor to its own workers, is never written to disk or into a topic, and
is valid for one version of Python only: another version may run its byte code wrongly or crash. Bodies of
messages are never decoded with dill.
"""

# ruff: noqa: PLC0415 - dill is imported where a function travels by value, which is rare

from __future__ import annotations

import contextlib
import dis
import functools
import importlib
import inspect
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from rmqclient.app import App
from rmqclient.calling.arguments import annotations_of, dependencies_of
from rmqclient.calling.hooks import Hook, Hooks, Kind
from rmqclient.codecs import python_function
from rmqclient.errors import HandlerError
from rmqclient.failures.retry import RetryPolicy
from rmqclient.handler import Handler
from rmqclient.names import function_name
from rmqclient.schedules.cron import Cron

LARGE_BYTES = 1024 * 1024
"""A transfer by value above this size is worth a warning: every worker that starts gets it again."""

_PYTHON = str(sys.implementation.cache_tag)

_log = logging.getLogger(__name__)

_REFUSED: dict[tuple[str, str], str] = {
    ("_thread", "lock"): "a lock",
    ("_thread", "RLock"): "a lock",
    ("threading", "_RLock"): "a lock",
    ("multiprocess.synchronize", "SemLock"): "a lock",
    ("multiprocessing.synchronize", "SemLock"): "a lock",
    ("asyncio.mixins", "_LoopBoundMixin"): "a lock or queue of asyncio",
    ("_io", "FileIO"): "an open file",
    ("_io", "BufferedReader"): "an open file",
    ("_io", "BufferedWriter"): "an open file",
    ("_io", "BufferedRandom"): "an open file",
    ("_io", "BufferedRWPair"): "an open file",
    ("_io", "TextIOWrapper"): "an open file",
    ("_socket", "socket"): "a socket",
    ("mmap", "mmap"): "a mapping of a file (mmap)",
    ("rmqclient.store.message_store", "MessageStore"): "an open store",
    ("rmqclient.store.kernel._kernel", "Mapping"): "a mapping of a store's file",
    ("rmqclient.sending.producer", "Producer"): "a Producer",
    ("rmqclient.consuming.push_consumer", "PushConsumer"): "a PushConsumer",
    ("rmqclient.tables.table", "Table"): "an open table (app.table makes one that can be shared)",
    ("msgspec._core", "StructMeta"): "a msgspec.Struct class that no other process can import",
    ("pydantic._internal._model_construction", "ModelMetaclass"): "a pydantic model that no other process can import",
}
"""Objects that must not be copied, by module and name of their class, so that nothing is imported to compare.

Subclasses count, too. The last two are metaclasses: dill fails to rebuild such a class, or refers to a class that the
worker does not have.
"""


@dataclass(frozen=True, slots=True)
class Parcel:
    """One handler of a transfer."""

    handler: Handler
    """With :func:`_on_its_way` instead of its function."""

    reference: str | None
    """``module:qualname`` of the function; None if it travels by value."""

    copies_retry: bool = False
    """Whether the retry policy travels by value, because it names a class that cannot be imported. Otherwise it is in
    ``handler``."""


@dataclass(frozen=True, slots=True)
class CronParcel:
    """One schedule of a transfer."""

    cron: Cron
    """With :func:`_on_its_way` instead of its function."""

    reference: str | None
    """As in :class:`Parcel`."""


@dataclass(frozen=True, slots=True)
class HookParcel:
    """A lifespan, a piece of middleware or the like of a transfer."""

    kind: Kind

    reference: str | None
    """As in :class:`Parcel`."""


class Loaded(NamedTuple):
    """What arrived."""

    handlers: list[Handler]
    crons: list[Cron]
    hooks: Hooks


@dataclass(frozen=True, slots=True)
class Transfer:
    """Handlers, schedules and hooks on their way to a worker; picklable. :func:`transfer` makes it."""

    python: str
    """The Python that made it, as its byte code is marked: ``cpython-311``."""

    parcels: tuple[Parcel, ...]
    """In the order of the handlers."""

    values: bytes = field(repr=False)
    """dill of the functions that travel by value, in order, of the annotations of each and of its dependencies, and of
    the retry policies that do; empty if nothing travels by value."""

    crons: tuple[CronParcel, ...] = ()
    """In the order of the schedules; their functions follow those of the handlers."""

    hooks: tuple[HookParcel, ...] = ()
    """In the order of their registration; their functions follow those of the schedules."""


def transfer(app_or_handlers: App | Sequence[Handler]) -> Transfer:
    """Pack handlers, and the schedules and hooks of an application, for another process of this Python.

    Warns when the copies take more than 1 MiB, and names the largest captured variable.

    Raises HandlerError for a handler that cannot travel; the error names the captured variable that prevents it.
    """
    handlers = app_or_handlers.handlers if isinstance(app_or_handlers, App) else app_or_handlers
    crons = app_or_handlers.crons if isinstance(app_or_handlers, App) else []
    parcels = tuple(_parcel(each) for each in handlers)
    cron_parcels = tuple(CronParcel(replace(each, function=_on_its_way), reference(each.function)) for each in crons)
    hooks = app_or_handlers.hooks.registered if isinstance(app_or_handlers, App) else []
    hook_parcels = tuple(_hook_parcel(each) for each in hooks)
    functions = [each.function for each in handlers]
    functions += [each.function for each in crons]
    functions += [each.function for each in hooks]
    copied = [each for each in functions if reference(each) is None]
    policies = [each.retry for each, parcel in zip(handlers, parcels, strict=True) if parcel.copies_retry]
    values = _dump_copies(copied, policies) if copied or policies else b""
    return Transfer(_PYTHON, parcels, values, cron_parcels, hook_parcels)


def load(transfer: Transfer) -> list[Handler]:
    """Return the handlers alone; see :func:`load_all`."""
    return load_all(transfer).handlers


def load_all(transfer: Transfer) -> Loaded:
    """Return the handlers, the schedules and the hooks, in the process that will run them.

    Functions of ``on_import`` are called first. Raises HandlerError for a transfer by another version of Python and for
    a name that does not exist. Errors that the application's modules raise during their import pass unchanged.
    """
    if transfer.python != _PYTHON:
        raise HandlerError(
            f"these handlers come from {transfer.python} and this is {_PYTHON}: run the supervisor and its workers "
            "with the same Python"
        )
    for hook in transfer.hooks:
        if hook.kind == "import" and hook.reference is not None:
            _find(hook.reference)()
    copies, policies = _load_copies(transfer.values)
    handlers = [
        replace(
            each.handler,
            function=next(copies) if each.reference is None else _find(each.reference),
            retry=next(policies) if each.copies_retry else each.handler.retry,
        )
        for each in transfer.parcels
    ]
    crons = [
        replace(each.cron, function=next(copies) if each.reference is None else _find(each.reference))
        for each in transfer.crons
    ]
    hooks = [
        Hook(each.kind, next(copies) if each.reference is None else _find(each.reference)) for each in transfer.hooks
    ]
    return Loaded(handlers, crons, Hooks(hooks))


def _parcel(handler: Handler) -> Parcel:
    policy = handler.retry
    copies_retry = any(reference(each) is None for each in (*policy.retry_on, *policy.dead_letter_on))
    on_its_way = replace(handler, function=_on_its_way, retry=RetryPolicy() if copies_retry else policy)
    return Parcel(on_its_way, reference(handler.function), copies_retry)


def _hook_parcel(hook: Hook) -> HookParcel:
    parcel = HookParcel(hook.kind, reference(hook.function))
    if hook.kind == "import" and parcel.reference is None:
        raise HandlerError(
            f"{function_name(hook.function)} runs before the handlers are imported, so it cannot travel with them: put "
            "it into a module that workers can import"
        )
    return parcel


def _on_its_way() -> None:
    """Stands for the function of a handler in a parcel."""


def reference(function: Any) -> str | None:
    """Return ``module:qualname`` if another process that imports this gets the same object, and None otherwise."""
    if not _is_there(function) or function.__module__ == "__main__":
        return None
    if not _can_be_imported(sys.modules[function.__module__]):
        return None
    return f"{function.__module__}:{function.__qualname__}"


def captured(function: Callable[..., Any]) -> dict[str, object]:
    """Return, by name, what a copy of ``function`` takes along.

    These are the globals that it uses, variables of the functions around it, defaults, and attributes of ``self``. The
    variables of functions that are copied, too, are included. Modules are left out: they travel by name.
    """
    found: dict[str, object] = {}
    pending: list[object] = [function]
    seen: list[object] = []
    while pending:
        each = pending.pop()
        if any(each is other for other in seen) or reference(each) is not None:
            continue
        seen.append(each)
        inner, variables = _look_into(each)
        for name, value in variables.items():
            found.setdefault(name, value)
        pending += inner
        pending += [value for value in variables.values() if isinstance(value, _LOOKED_THROUGH)]
    return {name: value for name, value in found.items() if not isinstance(value, ModuleType)}


def _is_there(function: Any) -> bool:
    """Tell whether its name leads to ``function`` in this process."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    qualname = getattr(function, "__qualname__", None)
    if module is None or not qualname:
        return False
    found = _attribute(module, qualname)
    # A class method is bound anew each time that it is looked up.
    return found is function or (isinstance(found, MethodType) and found == function)


def _attribute(module: ModuleType, qualname: str) -> Any:
    found: Any = module
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found


def _can_be_imported(module: ModuleType) -> bool:
    """Search for the module afresh, as another process does: it may be made by hand, or come from another file."""
    parent, _, _ = module.__name__.rpartition(".")
    path = getattr(sys.modules.get(parent), "__path__", None)
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.origin in ("built-in", "frozen"):
        return True
    if spec is None or (parent and path is None):
        return False
    found = (finder.find_spec(module.__name__, path) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    first = next((each for each in found if each is not None), None)
    return first is not None and first.origin == spec.origin


def _find(known_as: str) -> Any:
    module_name, _, qualname = known_as.partition(":")
    found = _attribute(importlib.import_module(module_name), qualname)
    if found is None:
        raise HandlerError(f"{known_as} does not exist in this process, although its supervisor has it")
    return found


# --- by value --------------------------------------------------------------------------------------------------


def _dump_copies(functions: Sequence[Callable[..., Any]], policies: Sequence[RetryPolicy]) -> bytes:
    sizes: dict[str, int] = {}
    for function in functions:
        sizes |= _trial(function)
    for policy in policies:
        with _blaming(f"{policy} names an exception"):
            _dump(policy)
    values = _dump((list(functions), _annotations(functions), list(policies)))
    if len(values) > LARGE_BYTES:
        largest = max(sizes, key=lambda each: sizes[each], default="none")
        warnings.warn(
            f"handlers take {len(values):,} bytes along to every worker; the largest captured variable is {largest} "
            f"with {sizes.get(largest, 0):,}: load it inside the handler, or put the handler into a module",
            stacklevel=3,
        )
    return values


def _trial(function: Callable[..., Any]) -> dict[str, int]:
    """Dump each captured variable alone, for its size and to know which one to blame. Raises HandlerError."""
    handler = f"handler {function_name(function)}"
    sizes: dict[str, int] = {}
    # Data first: a lock is blamed on the variable that holds it, not on the function or class that uses the variable.
    for name, value in sorted(captured(function).items(), key=lambda item: callable(item[1])):
        with _blaming(f"{handler} captures {name!r}"):
            sizes[f"{name!r} of {handler}"] = len(_dump(value))
    for annotation in annotations_of(function).values():
        with _blaming(f"{handler} has a parameter annotated with {annotation!r}"):
            _dump(annotation)
    with _blaming(handler):
        _dump(function)
    _log.debug("%s travels by value, with bytes per captured variable: %s", handler, sizes)
    return sizes


class _Refused(Exception):
    """An object that must not be copied; the text says what it is."""


@contextlib.contextmanager
def _blaming(subject: str) -> Iterator[None]:
    """Turn any exception of a dump into a HandlerError that begins with ``subject``."""
    advice = "put the handler into a module that workers can import"
    try:
        yield
    except _Refused as refused:
        raise HandlerError(
            f"{subject}, and so {refused}: a worker would get an unrelated copy, or no copy. "
            f"Make it inside the handler, or {advice}"
        ) from None
    except RecursionError as error:
        raise HandlerError(
            f"{subject}: dill cannot follow functions that refer to each other, or to themselves inside of another "
            f"function; {advice}"
        ) from error
    except Exception as error:
        raise HandlerError(
            f"{subject}, of which no copy can be made ({type(error).__name__}: {error}); {advice}"
        ) from error


def _dump(value: object) -> bytes:
    import dill

    buffer = io.BytesIO()
    pickler = dill.Pickler(buffer, recurse=True)  # on this dump only: multiprocess uses dill's global settings
    pickler.persistent_id = _inspection()
    with warnings.catch_warnings():
        warnings.simplefilter("error", dill.PicklingWarning)
        pickler.dump(value)
    return buffer.getvalue()


def _inspection() -> Callable[[object], None]:
    """Return the inspector of one copy: for each object that enters the copy it raises _Refused or returns None."""
    why_not_of_kind: Callable[[type], str | None] = functools.cache(_why_not_of_kind)
    why_not_named: Callable[[type | FunctionType], str | None] = functools.cache(_why_not_named)

    def look_at(value: object) -> None:
        if refused := why_not_named(value) if isinstance(value, (type, FunctionType)) else why_not_of_kind(type(value)):
            raise _Refused(refused)
        _forget_decoder(value)

    return look_at


def _forget_decoder(value: object) -> None:
    """Take away what msgspec keeps at a type that it has looked at: it cannot be copied, and is made again."""
    if "__msgspec_cache__" in getattr(value, "__dict__", ()):
        del value.__msgspec_cache__  # type: ignore[attr-defined]


def _why_not_of_kind(kind: type) -> str | None:
    return next(filter(None, (_REFUSED.get((each.__module__, each.__qualname__)) for each in kind.__mro__)), None)


def _why_not_named(value: type | FunctionType) -> str | None:
    """Say why a class or function can neither be found by its name nor copied: dill looks for names only here."""
    if reference(value) is not None:
        return None
    top = sys.modules.get(value.__module__.partition(".")[0])
    if top is not None and top.__name__ != "__main__" and _is_there(value) and not _can_be_imported(top):
        return f"{value.__module__}.{value.__qualname__} of a module that no other process can import"
    return _why_not_of_kind(type(value))


def _load_copies(values: bytes) -> tuple[Iterator[Callable[..., Any]], Iterator[RetryPolicy]]:
    if not values:
        return iter(()), iter(())
    import dill

    functions, annotations, policies = dill.loads(values)
    for function, found in annotations:
        _annotate(function, found)
    return iter(functions), iter(policies)


def _annotations(functions: Sequence[Callable[..., Any]]) -> list[tuple[Callable[..., Any], dict[str, Any]]]:
    """Return the resolved annotations of functions, and of the dependencies that travel by value with them."""
    needed = [each for function in functions for each in dependencies_of(function) if reference(each) is None]
    return [(each, annotations_of(each)) for each in (*functions, *needed)]


def _annotate(function: Callable[..., Any], annotations: dict[str, Any]) -> None:
    inner = python_function(function)
    if inner is not None and annotations:
        inner.__annotations__ = {**inner.__annotations__, **annotations}


# --- what is captured ------------------------------------------------------------------------------------------

_LOOKED_THROUGH = (FunctionType, MethodType, functools.partial)


def _look_into(function: object) -> tuple[list[object], dict[str, object]]:
    """Return the callables inside a callable, and the other variables that it takes along."""
    if isinstance(function, functools.partial):
        arguments = {f"argument {number} of partial": value for number, value in enumerate(function.args)}
        return [function.func], {**arguments, **function.keywords}
    if isinstance(function, MethodType):
        return [function.__func__], _attributes(function.__self__)
    if isinstance(function, FunctionType):
        return [], {**_globals(function), **_around(function), **_defaults(function)}
    return [], _attributes(function)


def _attributes(instance: object) -> dict[str, object]:
    if isinstance(instance, type) or not hasattr(instance, "__dict__"):
        return {"self": instance}
    return {f"self.{name}": value for name, value in vars(instance).items()}


def _globals(function: FunctionType) -> dict[str, object]:
    names = _global_names(function.__code__)
    return {name: value for name, value in function.__globals__.items() if name in names and value is not function}


def _global_names(code: CodeType) -> set[str]:
    names = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*(_global_names(each) for each in code.co_consts if isinstance(each, CodeType)))


def _around(function: FunctionType) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a variable that the function around it has not set yet
            found[name] = cell.cell_contents
    return found


def _defaults(function: FunctionType) -> dict[str, object]:
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function, follow_wrapped=False).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
