"""The bodies are imported by name when they are first used."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from rmqclient.remoting import bodies
from rmqclient.remoting.bodies.body import Body


def test_a_body_comes_from_where_a_type_checker_finds_it() -> None:
    imports = ast.walk(ast.parse(Path(bodies.__file__).read_text(encoding="utf-8")))
    seen = [node.module for node in imports if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"]
    assert seen == [f"{bodies.__name__}.{module}" for module in bodies._NAMES]
    for name, module in bodies._HOMES.items():
        assert getattr(bodies, name) is getattr(importlib.import_module(f"{bodies.__name__}.{module}"), name)


def test_every_body_can_be_imported_from_the_package() -> None:
    for module in bodies._NAMES:
        found = vars(importlib.import_module(f"{bodies.__name__}.{module}")).values()
        classes = [each for each in found if isinstance(each, type) and issubclass(each, Body)]
        own = {each.__name__ for each in classes if each.__module__ == f"{bodies.__name__}.{module}"}
        assert {name for name in own if not name.startswith("_")} <= bodies._HOMES.keys()


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError):
        bodies.Nothing  # type: ignore[attr-defined]  # noqa: B018
