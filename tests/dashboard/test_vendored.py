"""What a browser gets of other people's libraries, and that all of it is in the wheel."""

from __future__ import annotations

import hashlib
import json
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "rmqclient" / "dashboard"
VENDOR = DASHBOARD / "static" / "vendor"


def test_each_vendored_file_is_the_one_that_was_published() -> None:
    for library in json.loads((VENDOR / "vendor.json").read_text(encoding="utf-8")):
        folder = VENDOR / f"{library['name'].removesuffix('.org')}-{library['version']}"
        found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        assert found == library["files"]
        assert "LICENSE" in found


def test_each_vendored_folder_is_in_the_list() -> None:
    listed = json.loads((VENDOR / "vendor.json").read_text(encoding="utf-8"))
    names = {f"{library['name'].removesuffix('.org')}-{library['version']}" for library in listed}
    assert {path.name for path in VENDOR.iterdir() if path.is_dir()} == names


def test_templates_and_static_files_are_published() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    patterns = setuptools["package-data"]["rmqclient.dashboard"]
    files = [path.relative_to(DASHBOARD) for name in ("static", "templates") for path in (DASHBOARD / name).rglob("*")]
    for path in files:
        if (DASHBOARD / path).is_file():
            depth = len(path.parts)
            assert any(len(Path(each).parts) == depth and fnmatch(str(path), each) for each in patterns), path


def test_pages_load_nothing_from_elsewhere() -> None:
    for path in [*DASHBOARD.rglob("*.html"), *(DASHBOARD / "static").glob("*")]:
        if path.is_file():
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert "http://" not in text, path
            assert "https://" not in text, path
            assert " style=" not in text, f"{path}: the policy of the pages forbids inline styles"
            assert " onclick=" not in text, path
