"""Extras: what of this package each extra of a wheel makes usable, alone and with the newest versions of its packages.

A package that leaves out something by a new version (SQLAlchemy 2.1 no longer brings greenlet) is seen here first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.packaging.distributions import run

IMPORTED: Final = {
    "archive": "rmqclient.archive, pyarrow.parquet",
    "arrow": "rmqclient.arrow",
    "queries": "rmqclient.arrow.queries",
    "spark": "rmqclient.spark, pyspark.sql",
    "delta": "deltalake",
    "compression": "lz4.frame, zstandard",
    "chart": "matplotlib.pyplot",
    "dashboard": "rmqclient.dashboard.application, uvicorn",
    "opentelemetry": "rmqclient.tracing.spans",
    "django": "rmqclient.frameworks.django.sending",
    "fastapi": "rmqclient.frameworks.asgi, fastapi",
    "sqlalchemy": "rmqclient.frameworks.sqlalchemy, sqlalchemy.ext.asyncio",
    "structlog": "rmqclient.frameworks.structlog",
    "postgresql": "psycopg",
}
"""What an application imports after it installed the extra, and nothing else."""

OURS: Final = frozenset({"deployment", "dev", "docs", "examples", "frames", "frameworks", "test"})
"""Extras of this repository's own tests and tools, which ``make install-all`` installs together."""


def try_extra(extra: str, python: str, wheel: Path, environment: Path) -> str:
    """Install a wheel with one extra into an environment of its own and import what it brings.

    Returns how many packages it has then. Raises AssertionError with what pip or the import said.
    """
    run(python, "-m", "venv", str(environment), cwd=environment.parent)
    installed = str(environment / "bin" / "python")
    run(installed, "-m", "pip", "install", "--quiet", f"{wheel}[{extra}]", cwd=environment.parent, timeout_s=1800)
    django = "from django.conf import settings; settings.configure(INSTALLED_APPS=[]); " if extra == "django" else ""
    run(installed, "-c", f"{django}import {IMPORTED[extra]}", cwd=environment.parent)
    listed = run(installed, "-m", "pip", "list", "--format=freeze", cwd=environment.parent)
    return f"{len(listed.split())} packages"
