"""Scripts: small programs that stand before another one, in the user's cache directory.

::

    $XDG_CACHE_HOME/rmqclient/<digest of the text>/bin/<name>
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def script(name: str, text: str) -> Path:
    """Return the path of the program with this text, and write it when it is not there yet. Raises OSError.

    Whoever writes it writes the same, and a rename leaves no half of it to somebody who starts it now.
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
