"""Closing: the base of whatever a ``with`` block closes."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self


class Closing:
    """Is itself in a ``with`` block, which closes it at its end, also when an exception leaves the block."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. Closing twice does nothing."""
