"""Assets: scripts, styles and pictures. A page names them with a version, so that a browser keeps what it has."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC: Final = Path(__file__).parents[1] / "static"


@cache
def version() -> str:
    """Return what changes when any of the files does."""
    digest = hashlib.sha256()
    for path in sorted(path for path in STATIC.rglob("*") if path.is_file()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class Assets(StaticFiles):
    """Answers a file. Under its present version a browser need not ask again for a year, else each time."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the answer for one file. Raises HTTPException 404."""
        answer = await super().get_response(path, scope)
        is_present = parse_qs(scope["query_string"].decode("latin-1")).get("v") == [version()]
        answer.headers["Cache-Control"] = "public, max-age=31536000, immutable" if is_present else "no-cache"
        return answer
