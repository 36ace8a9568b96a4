"""Copies: an application that other processes cannot import, for worker processes of this Python.

Handlers of a notebook, or of the script that runs, have no name by which another process could import them. dill
copies them, with the globals and the captured variables that they use, and with the rest of their application. What
another process can import goes by its name.

All of an application is one copy: what its handlers share here, they share there. They share nothing with this process,
nor with another worker. An object that dill would copy into something else is refused, such as an open file.

Annotations are resolved before, because dill takes along only the globals that the *code* of a function uses.

A copy contains code. It goes from a process to its own workers, and is never written to a file or sent to a topic.
"""

from __future__ import annotations

import importlib
import io
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CellType, FunctionType, ModuleType
from typing import Any, NamedTuple, Protocol

import dill
import dill.detect

from rmqclient.calling.arguments import annotations_of, dependencies_of
from rmqclient.calling.hooks import Hook, Hooks
from rmqclient.codecs import python_function
from rmqclient.errors import HandlerError
from rmqclient.handler import Handler
from rmqclient.names import function_name
from rmqclient.schedules.cron import Cron

LARGE_BYTES = 1024 * 1024
"""A copy above this size is worth a warning: every worker that starts gets it again."""

_LOCKS = (type(threading.Lock()), type(threading.RLock()))


class Application(Protocol):
    """An App."""

    handlers: list[Handler]
    crons: list[Cron]
    hooks: Hooks


@dataclass(frozen=True, slots=True)
class CopiedApp:
    """A copy of an App, on its way to a worker."""

    values: bytes = field(repr=False)
    """dill of the App, and of the annotations of functions in it."""

    @classmethod
    def of(cls, app: Application) -> CopiedApp:
        """Copy an App. Warns of a copy that is large, and names the variable that makes it so.

        Raises HandlerError for what cannot be copied; it names the handler, the variable and the object.
        """
        handlers = [each.function for each in app.handlers]
        needed = [each for function in handlers for each in (function, *dependencies_of(function))]
        copied = [each for each in needed if not _is_imported(python_function(each))]
        annotations = [_Annotated(each, annotations_of(each)) for each in copied]
        copier = _Copier()
        try:
            values = copier.copy((app, annotations))
        except Exception as error:
            raise _explained(copier.way, error) from error
        if len(values) > LARGE_BYTES:
            warnings.warn(_size(values, copied), stacklevel=4)
        return cls(values)

    def load(self) -> Any:
        """Return the App, in the process that runs it. Modules are imported for it, which may raise anything."""
        app, annotations = dill.loads(self.values)
        for each in annotations:
            inner = python_function(each.function)
            if inner is not None:
                inner.__annotations__ = {**inner.__annotations__, **each.annotations}
        return app


class _Annotated(NamedTuple):
    """A handler, or a function that one depends on, with its resolved annotations."""

    function: Callable[..., Any]
    annotations: dict[str, Any]


class _Refused(Exception):
    """An object that must not be copied; the text says what it is."""


class _Copier:
    """Makes one copy, and knows the way to the object that cannot be copied."""

    def __init__(self) -> None:
        self.way: list[object] = []
        """The objects inside of each other that are being copied, the outermost first."""
        self._buffer = io.BytesIO()
        self._dill = dill.Pickler(self._buffer, recurse=True)  # on this copy only: multiprocess uses dill's settings
        self._save = self._dill.save
        self._dill.save = self._copy

    def copy(self, value: object) -> bytes:
        """Return the copy. Raises anything, and leaves :attr:`way` as it is then."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", dill.PicklingWarning)
            self._dill.dump(value)
        return self._buffer.getvalue()

    def _copy(self, value: object, save_persistent_id: bool = True) -> None:
        self.way.append(value)
        if refused := _why_not(value):
            raise _Refused(refused)
        is_known = id(value) in self._dill.memo
        if isinstance(value, ModuleType) and value.__name__ != "__main__" and not is_known:
            # dill would copy what stands in it
            self._dill.save_reduce(importlib.import_module, (value.__name__,), obj=value)
        else:
            self._save(value, save_persistent_id)
        self.way.pop()


def _why_not(value: object) -> str | None:
    """Say what dill would copy into something else; None for all that it copies well, or refuses itself."""
    if isinstance(value, _LOCKS):
        return "a lock, whose copy would be another lock"
    if isinstance(value, io.IOBase) and not isinstance(value, (io.BytesIO, io.StringIO)):
        return "an open file"
    if isinstance(value, type):
        library = type(value).__module__.partition(".")[0]
        if library in ("msgspec", "pydantic") and not _is_imported(value):
            return f"the class {value.__qualname__} of {library}, which can only be imported"
        if "__msgspec_cache__" in vars(value):  # what msgspec knows of a class that it has looked at: it is made again
            del value.__msgspec_cache__  # type: ignore[attr-defined]
    return None


def _is_imported(value: Any) -> bool:
    """Tell whether another process finds a function or a class by its name."""
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - whatever it is that is wrong
        return False
    return getattr(value, "__module__", None) != "__main__"


# --- why not ---------------------------------------------------------------------------------------------------


def _explained(way: Sequence[object], error: Exception) -> HandlerError:
    """Return the error for the last object of a way."""
    start, owner = 0, "the application"
    for number, each in enumerate(way):
        if isinstance(each, Handler | Cron | Hook | _Annotated):
            start, owner = number, f"handler {function_name(each.function)}"
    names = " -> ".join(_names(way[start:]))
    what = str(error) if isinstance(error, _Refused) else f"{_kind(way[-1])} ({type(error).__name__}: {error})"
    if isinstance(error, RecursionError):
        what = "functions that call each other, or themselves inside of another function, which dill cannot follow"
    return HandlerError(
        f"{owner} cannot be copied for worker processes, because it uses {names}{': ' if names else ''}{what}. Make it "
        "in a lifespan of the application or inside of the handler, or put the handler into a module, which workers "
        "import"
    )


def _names(way: Sequence[object]) -> Iterator[str]:
    """Name the objects of a way that have a name where they are used: variables, attributes and keys."""
    named: object = None
    for number, holder in enumerate(way):
        for name, value in _held(holder).items():
            if value is not named and any(value is each for each in way[number + 1 :]):
                named = value
                yield repr(name)


def _held(holder: object) -> dict[Any, object]:
    if isinstance(holder, FunctionType):
        cells = zip(holder.__code__.co_freevars, holder.__closure__ or (), strict=True)
        return holder.__globals__ | {name: cell.cell_contents for name, cell in cells if cell != CellType()}
    return holder if isinstance(holder, dict) else {}


def _kind(value: object) -> str:
    return f"the class {value.__qualname__}" if isinstance(value, type) else f"a value of {type(value).__qualname__}"


def _size(values: bytes, functions: Sequence[Callable[..., Any]]) -> str:
    sizes = {
        name: len(_Copier().copy(value))
        for function in map(python_function, functions)
        for name, value in (dill.detect.globalvars(function) | dill.detect.freevars(function)).items()
    }
    largest = max(sizes, key=lambda each: sizes[each], default="none")
    return (
        f"each worker gets a copy of the application of {len(values):,} bytes; the largest variable is {largest!r} "
        f"with {sizes.get(largest, 0):,}: load it in a lifespan or inside of the handler"
    )
