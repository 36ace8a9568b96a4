"""Scripts: small programs in the user's cache directory that start another program.

::

    $XDG_CACHE_HOME/rmqclient/<digest of the text>/bin/<name>
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def script(name: str, text: str) -> Path:
    """Return the path of the program with this text; write the program if it does not exist yet. Raises OSError.

    Several processes may write the program at once: all write the same text, and the rename at the end means that no
    process can start an incomplete file.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = _cache_directory() / digest / "bin" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{name}-", delete=False) as file:
            file.write(text)
        unfinished = Path(file.name)
        unfinished.chmod(0o755)
        unfinished.replace(path)
    return path


def _cache_directory() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "rmqclient"
