"""When a worker that ended is started again. Pure: no clock, no random source of its own.

Delays double from 0.1 s to 30 s with each failure in a row. Chance takes up to half of a delay away, so that workers
that died together do not start together. A minute of health forgets all failures.

A worker is in a **crash loop**, and is then started only at the longest delay, after one of these:

- 5 failures in a row before it was ever ready: the cause does not depend on a message. A name that another process
  still has does not count: that one may be about to end;
- 20 failures in a row, each after less than 10 s of health. That number is above the 16 delivery attempts that
  RocketMQ allows a message: one message that kills its process may use all its attempts, and does not stop the
  worker that meanwhile handles the others.

When every worker of a supervisor is in a crash loop, it gives up: see :mod:`rmqclient.workers.processes.supervisor`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartHistory:
    """The failures of one worker that are not yet forgotten."""

    failures: int = 0
    """In a row, without a healthy minute between them."""

    short_lives: int = 0
    """In a row, without 10 s of health between them."""

    failed_boots: int = 0
    """In a row, without having been ready between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What the policy decided about one failure."""

    history: RestartHistory
    delay_s: float
    crash_loop: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """The limits; all times in seconds."""

    first_delay_s: float = 0.1
    longest_delay_s: float = 30.0
    forgets_after_s: float = 60.0
    healthy_after_s: float = 10.0
    failed_boots_limit: int = 5
    short_lives_limit: int = 20

    def after_failure(self, history: RestartHistory, *, healthy_s: float | None, jitter: float) -> Restart:
        """Decide about a worker that just ended.

        ``healthy_s`` is how many seconds it had been ready and well, None if it was never ready. ``jitter`` is a random
        number in [0, 1).
        """
        now = self._counted(history, healthy_s)
        crash_loop = now.failed_boots >= self.failed_boots_limit or now.short_lives >= self.short_lives_limit
        delay = self.longest_delay_s if crash_loop else self._doubled(now.failures)
        return Restart(history=now, delay_s=delay * (1 - jitter / 2), crash_loop=crash_loop)

    def _counted(self, history: RestartHistory, healthy_s: float | None) -> RestartHistory:
        lived = 0.0 if healthy_s is None else healthy_s
        return RestartHistory(
            failures=1 if lived >= self.forgets_after_s else history.failures + 1,
            short_lives=0 if lived >= self.healthy_after_s else history.short_lives + 1,
            failed_boots=history.failed_boots + 1 if healthy_s is None else 0,
        )

    def _doubled(self, failures: int) -> float:
        doublings = min(failures - 1, 64)  # a float of 2 ** 1024 does not exist, and the longest delay is near
        return min(self.longest_delay_s, float(self.first_delay_s * 2.0**doublings))
