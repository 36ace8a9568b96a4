"""Retyped: a definition that a person runs again, in a notebook or at a prompt, to put it in the place of the first.

In a script the second definition is a mistake, and stays an error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_TYPED = "__main__"


def is_retyped(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Tell whether both functions were typed in an interactive session: they have no module but ``__main__``."""
    modules = {getattr(old, "__module__", None), getattr(new, "__module__", None)}
    return hasattr(sys, "ps1") and modules == {_TYPED}
