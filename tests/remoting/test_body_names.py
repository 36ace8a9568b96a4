"""The bodies are imported by name when they are first used."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from rmqclient.remoting import bodies


def test_a_body_comes_from_where_a_type_checker_finds_it() -> None:
    imports = ast.walk(ast.parse(Path(bodies.__file__).read_text(encoding="utf-8")))
    seen = {
        alias.name: str(node.module).removeprefix("rmqclient.remoting.bodies.")
        for node in imports
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name: seen[name] for name in bodies.__all__} == bodies._HOMES
    assert all(hasattr(bodies, name) for name in bodies.__all__)


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        bodies.Nothing  # type: ignore[attr-defined]  # noqa: B018
