"""Retry: what becomes of a message that its handler could not finish."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, when, and after which exceptions a message is delivered again, before it is a dead letter."""

    max_retries: int = 16
    """Deliveries after the first one. [maxReconsumeTimes]"""

    delay_levels: tuple[int, ...] = ()
    """Delay level of the first retry, of the second, and so on; the last one goes on. Empty: 3 + retries so far."""

    retry_on: tuple[type[BaseException], ...] = (BaseException,)
    """Other exceptions make a dead letter at once."""

    dead_letter_on: tuple[type[BaseException], ...] = ()
    """These make a dead letter at once, whatever ``retry_on`` says."""
