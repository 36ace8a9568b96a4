"""From what a person types to an :class:`rmqclient.App`.

A target is ``module:attribute``, with the working directory on the path::

    shop.queue:app          attribute app of the module shop.queue
    shop.queue:apps.main    a dotted attribute
    shop.queue              the only App of that module
    src/shop/queue.py:app   a file: its module name is made from the packages it stands in

A file is imported under a module name, so its directory (above its outermost package) joins the path too.

``rmq run`` imports the App once, to check it and to learn its store. Each worker process imports it again, by the
name of its module, as gunicorn's do: so a worker runs the code as it is on disk when it starts.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import importlib
import logging
import sys
import sysconfig
import traceback
from collections.abc import Collection
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import rmqclient
from rmqclient import App
from rmqclient.calling.arguments import arguments_of
from rmqclient.codecs import python_function
from rmqclient.errors import HandlerError
from rmqclient.place import located, shown

_log = logging.getLogger(__name__)

_OURS = f"{Path(rmqclient.__file__).parent}/"
"""Where no mistake of an application is."""

_PYTHON = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
_INSTALLED = tuple(f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib"))
"""Where one is only when the application is installed there: these are in the directory of Python itself."""


class TargetError(Exception):
    """A target names no usable App. The text is one line and says what to do."""


@dataclass(frozen=True, slots=True)
class ImportedApp:
    """An App by its name: what a target means in any process, whatever its working directory is."""

    module: str
    root: Path
    """The directory that joins ``sys.path``; absolute."""
    attribute: str = ""
    """Empty for the only App of the module."""
    groups: tuple[str, ...] = ()
    """Only the handlers of these groups; empty for all."""
    file: Path | None = None
    """The file that the target names; None if it names the module."""

    @classmethod
    def of(cls, target: str, groups: Collection[str] = ()) -> ImportedApp:
        """Return what a person means by ``target``. Imports nothing. Raises :class:`TargetError` for a missing file."""
        place, _, attribute = target.partition(":")
        if not _is_file_name(place):
            return cls(place, Path.cwd(), attribute, tuple(groups))
        file = Path(place).resolve()
        return cls(*_module_of(file), attribute, tuple(groups), file)

    def load(self) -> App:
        """Import it. Puts a directory at the head of ``sys.path``.

        Raises :class:`TargetError` if the module cannot be found, fails or is another file's, if the attribute does not
        exist or is not an App, if the App has neither handler nor schedule, and for a group that has no handler.
        """
        module = _import_module(self.module, self.root)
        found = getattr(module, "__file__", None)
        if self.file is not None and (found is None or Path(found).resolve() != self.file):
            raise TargetError(f"{self.file} cannot be imported: {self.module} is the name of {found}; rename the file")
        app = _attribute(module, self.attribute) if self.attribute else _only_app(module)
        name = f"{self.module}:{self.attribute}".removesuffix(":")
        if not isinstance(app, App):
            raise TargetError(f"{name} is a {type(app).__name__}, not an App{_apps_hint(module)}")
        if not app.handlers and not app.crons:
            raise TargetError(f"{name} has no handler: decorate a function with @app.handler(topic, group=...)")
        _check_handlers(app)
        return of_groups(app, self.groups)

    def with_version(self) -> str:
        """Return its name, and the version of its package if that has one: ``shop:app 1.4.2``. It was imported."""
        package = self.module.partition(".")[0]
        version = getattr(sys.modules.get(package), "__version__", None)
        if version is None:
            with contextlib.suppress(metadata.PackageNotFoundError):
                version = metadata.version(package)
        return f"{self.module}:{self.attribute}".removesuffix(":") + (f" {version}" if version else "")


def load_app(target: str, groups: Collection[str] = ()) -> App:
    """Import what ``target`` names. Raises as :meth:`ImportedApp.load`."""
    return ImportedApp.of(target, groups).load()


def _check_handlers(app: App) -> None:
    """Raise :class:`TargetError` for a handler of which a name is missing also in the whole module, with its place."""
    for handler in app.handlers:
        try:
            arguments_of(handler.function, is_batch=handler.batch is not None, overrides=app.hooks.overrides)
        except HandlerError as error:
            function = python_function(handler.function)
            place = "" if function is None else _place(function.__code__.co_filename, function.__code__.co_firstlineno)
            raise TargetError(f"{error}{place}") from error


def of_groups(app: App, groups: Collection[str]) -> App:
    """Return the application with the handlers of these groups only, and all schedules; no group means all handlers.

    Raises :class:`TargetError` for a group that has no handler.
    """
    if not groups:
        return app
    known = sorted({handler.group for handler in app.handlers})
    for group in groups:
        if group not in known:
            raise TargetError(f"no handler has the group {group!r}{_near(group, known)}; there are {', '.join(known)}")
    chosen = copy.copy(app)
    chosen.handlers = [handler for handler in app.handlers if handler.group in groups]
    return chosen


def place_of(app: App, root: Path | str | None, *, is_stronger: bool) -> Path | str | None:
    """Return the store to run an application on; None if nobody names one.

    What is said of one command alone, which is ``is_stronger``, wins over what the application says of itself, and that
    wins over what is said for all commands. So workers and the producers of the same code never use two stores by
    accident.
    """
    own = app.own_root
    if root is None or own is None:
        return root or own
    if is_stronger or located(str(root)) == own:
        return root
    _log.warning(
        "the application names its store, %s, so %s is not used; --store or a variable of this command replaces it",
        shown(own),
        shown(root),
    )
    return own


def _is_file_name(place: str) -> bool:
    return place.endswith(".py") or "/" in place


def _module_of(file: Path) -> tuple[str, Path]:
    """Return the module name of a file, and the directory that its outermost package stands in."""
    if not file.is_file():
        raise TargetError(f"no file {file}{_near(file.name, _python_files(file.parent))}")
    names, root = [file.stem], file.parent
    while (root / "__init__.py").is_file():
        names.insert(0, root.name)
        root = root.parent
    if names[-1] == "__init__":
        names.pop()
    return ".".join(names), root


def _import_module(name: str, root: Path) -> ModuleType:
    if not name or name.startswith("."):
        raise TargetError(f"{name!r} is not a module name: write module:attribute or file.py:attribute")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            near = _near(name, [Path(file).stem for file in _python_files(root)])
            raise TargetError(
                f"no module {error.name} from {root}{near}; or name the file: path/to/file.py:app"
            ) from error
        raise TargetError(_failure(name, error) + "; install it, or correct the import") from error
    except (Exception, SystemExit) as error:
        raise TargetError(_failure(name, error)) from error


def _failure(name: str, error: BaseException) -> str:
    """Return one line about an exception that a module raised during its import, with the place of its last frame."""
    if isinstance(error, SyntaxError):
        return f"importing {name} failed: {error.msg}{_place(error.filename, error.lineno)}"
    last = _last_of_application(traceback.extract_tb(error.__traceback__))
    return f"importing {name} failed: {type(error).__name__}: {error}{_place(last.filename, last.lineno)}"


def _place(filename: str | None, line: int | None) -> str:
    return f" ({filename}, line {line})"


def _last_of_application(frames: list[traceback.FrameSummary]) -> traceback.FrameSummary:
    """Return where the application did what failed: in a file of its own if there is one, else of a package."""
    files = [each for each in frames if not each.filename.startswith(("<", _OURS))]  # "<string>" is made by others
    installed = [each for each in files if each.filename.startswith(_INSTALLED)]
    own = [each for each in files if not each.filename.startswith((*_PYTHON, *_INSTALLED))]
    return (own or installed or files or frames)[-1]


def _attribute(module: ModuleType, dotted: str) -> Any:
    found: Any = module
    for name in dotted.split("."):
        if not hasattr(found, name):
            near = _near(name, [known for known in dir(found) if not known.startswith("_")])
            raise TargetError(f"{module.__name__} has no attribute {dotted}{near or _apps_hint(module)}")
        found = getattr(found, name)
    return found


def _only_app(module: ModuleType) -> App:
    apps = _apps(module)
    if len(apps) != 1:
        raise TargetError(
            f"{module.__name__} has {len(apps)} Apps: write {module.__name__}:attribute{_apps_hint(module)}"
        )
    return next(iter(apps.values()))


def _apps(module: ModuleType) -> dict[str, App]:
    return {name: value for name, value in vars(module).items() if isinstance(value, App)}


def _apps_hint(module: ModuleType) -> str:
    apps = _apps(module)
    return f"; its Apps: {', '.join(apps)}" if apps else "; it has no App"


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _python_files(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.glob("*.py"))
