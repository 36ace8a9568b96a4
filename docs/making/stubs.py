"""Compiled classes carry no documentation at run time: the reference takes it from the stub that editors read."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from sphinx.application import Sphinx

_STUB = Path(__file__).parents[2] / "store" / "kernel" / "_kernel.pyi"
_MODULE = "rmqclient.store.kernel._kernel"


def setup(app: Sphinx) -> dict[str, bool]:
    """Let autodoc ask for members, signatures and texts of compiled classes."""
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _text)
    return {"parallel_read_safe": True}


@cache
def described() -> dict[str, tuple[str, str]]:
    """Return by name, such as ``Message`` and ``Message.topic``, the signature and the text of the stub."""
    found: dict[str, tuple[str, str]] = {}
    for node in ast.parse(_STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            members = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            made = [_shown(each) for each in members if each.name == "__init__"]
            found[node.name] = (made[0] if made else "", ast.get_docstring(node) or "")
            for each in members:
                found[f"{node.name}.{each.name}"] = (_shown(each), ast.get_docstring(each) or "")
    return found


def _shown(function: ast.FunctionDef) -> str:
    if any(isinstance(each, ast.Name) and each.id == "property" for each in function.decorator_list):
        return ""
    function.args.args = [each for each in function.args.args if each.arg != "self"]
    return f"({ast.unparse(function.args)})"


def _own_name(obj: object, name: str) -> str | None:
    """Return the name in the stub of a documented object, or None for what is not compiled."""
    if isinstance(obj, type):
        return obj.__name__ if obj.__module__ == _MODULE else None
    owner = getattr(obj, "__objclass__", None)
    if owner is None and getattr(obj, "__module__", None) == _MODULE:
        return str(getattr(obj, "__qualname__", ""))
    if owner is not None and owner.__module__ == _MODULE:
        return f"{owner.__name__}.{name.rpartition('.')[2]}"
    return None


def _skip(_: Sphinx, __: str, name: str, obj: object, ___: bool, ____: object) -> bool | None:
    own = _own_name(obj, name)
    if own is None:
        return None
    return not described().get(own, ("", ""))[1] or name.startswith("_")


def _signature(
    _: Sphinx, __: str, name: str, obj: object, ___: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    own = _own_name(obj, name)
    if signature is None or own not in described():  # Sphinx 9.0 fails on a signature where it found none
        return None
    return described()[own][0] or signature, returns


def _text(_: Sphinx, __: str, name: str, obj: object, ___: object, lines: list[str]) -> None:
    own = _own_name(obj, name)
    if own in described():
        lines[:] = [*described()[own][1].splitlines(), ""]
