"""Needs: what a marked block of a page needs beside this package, and what the test that runs it provides.

==========================  ===========================================================================================
``<!-- run with ... -->``   the block runs
==========================  ===========================================================================================
``Spark``                   in the tests of Spark, in their session
``SQLAlchemy`` and so on    where the package is installed
``a server``                against `rmq serve`, whose address stands in the place of ``host:9876``
``an S3 server``            against a server on loopback with the bucket ``bucket``, which the environment names
``a notebook``              as a cell of an IPython kernel
``pytest``                  as a file of tests
==========================  ===========================================================================================

A page with marks runs once more as one program with all that they name, but Spark; if a mark names Spark, then once
more in the tests of Spark, with all of its blocks.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest

from rmqclient.testing import serve
from tests.docs.page import PAGES, REPOSITORY, blocks_of
from tests.support.s3_server import KEY, SECRET, s3_server

SPARK, NOTEBOOK, PYTEST, SERVER, S3 = "Spark", "a notebook", "pytest", "a server", "an S3 server"

MODULES = {
    SPARK: ("pyspark",),
    NOTEBOOK: ("ipykernel", "jupyter_client"),
    PYTEST: ("pytest",),
    SERVER: (),
    S3: ("moto", "pyarrow"),
    "SQLAlchemy": ("sqlalchemy",),
    "structlog": ("structlog",),
    "gevent": ("gevent",),
    "DuckDB and Polars": ("duckdb", "polars", "pandas"),
    "prometheus_client": ("prometheus_client",),
}
"""Every need, with the modules without which it cannot be met."""

ADDRESS = "host:9876"
"""The server of a cluster in the pages."""


@dataclass(frozen=True)
class Provided:
    """What a program gets: other texts in the place of some of its own, and variables of the environment."""

    texts: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def into(self, program: str) -> str:
        """Return the program with its own texts replaced."""
        for text, other in self.texts.items():
            program = program.replace(text, other)
        return program


Case: TypeAlias = tuple[Path, frozenset[str]]
"""A page, and what its program may need."""


def cases_without_spark() -> list[Case]:
    """Return the pages with marked blocks that run without Spark."""
    return _cases(lambda needs: SPARK not in needs)


def cases_with_spark() -> list[Case]:
    """Return the pages with blocks that need Spark; their other blocks run beside them."""
    return [(page, needs) for page, needs in _cases(lambda _: True) if SPARK in needs]


def _cases(can_run: Callable[[frozenset[str]], bool]) -> list[Case]:
    cases = []
    for page in PAGES:
        marks = [block.needs for block in blocks_of(page.read_text(encoding="utf-8"))]
        if needs := frozenset[str]().union(*filter(can_run, marks)):
            cases.append((page, needs))
    return cases


def case_id(case: Case) -> str:
    """Return the page and what it needs, for the name of a test."""
    page, needs = case
    return f"{page.relative_to(REPOSITORY).as_posix()} with {', '.join(sorted(needs))}"


def skip_without(needs: frozenset[str]) -> None:
    """Leave out the test of a program that needs what this environment has not. An unknown need is an error."""
    missing = [name for need in sorted(needs) for name in MODULES[need] if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: make install-all brings it")


@contextmanager
def provided(needs: frozenset[str], directory: Path) -> Iterator[Provided]:
    """Start the servers that a program needs, and return what it gets; their logs go to ``directory``."""
    given = Provided()
    with ExitStack() as stack:
        for need in sorted(needs & _SERVERS.keys()):
            more = stack.enter_context(_SERVERS[need](directory))
            given = Provided(given.texts | more.texts, given.variables | more.variables)
        yield given


@contextmanager
def _rmq_serve(_: Path) -> Iterator[Provided]:
    with serve() as server:
        yield Provided(texts={ADDRESS: server.address})


@contextmanager
def _s3(directory: Path) -> Iterator[Provided]:
    with s3_server(directory, "bucket") as server:
        names = {"AWS_ENDPOINT_URL": f"http://{server.endpoint}", "AWS_REGION": "us-east-1"}
        yield Provided(variables=names | {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET})


_SERVERS: dict[str, Callable[[Path], AbstractContextManager[Provided]]] = {SERVER: _rmq_serve, S3: _s3}
