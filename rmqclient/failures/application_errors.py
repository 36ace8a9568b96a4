"""Application errors: the class and the text of what code of the application raised.

``isinstance`` asks the error for its ``__class__``, and a class for its ``__instancecheck__``; ``str`` asks the error
for its text. All may be code of the application, and what that raises must not end the thread that looks at the error.
"""

from __future__ import annotations

from typing import TypeGuard, TypeVar

Kind = TypeVar("Kind", bound=BaseException)


def is_a(error: BaseException, kind: type[Kind]) -> TypeGuard[Kind]:
    """Whether ``except kind`` would catch an error. Calls no code of the application."""
    return kind in type(error).__mro__


def is_one_of(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether an error is an instance of one of these classes of the application; as :func:`is_a` if they raise."""
    try:
        return isinstance(error, kinds)
    except BaseException:  # noqa: BLE001 - SystemExit would end the thread of the handler
        return any(is_a(error, kind) for kind in kinds)


def text_of(error: BaseException) -> str:
    """Return the text of an error. Never raises."""
    try:
        return str(error)
    except BaseException as failed:  # noqa: BLE001 - the same
        return f"(no text: {type(failed).__name__})"
