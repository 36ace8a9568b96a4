"""Answers: how each group stands with a message, in a sentence that a person can act on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rmqclient.admin.life import Step
from rmqclient.failures.frames import raised_in
from rmqclient.message import ReceivedMessage
from rmqclient.store.observe.summary import Group

TONES = {
    "given up": "bad",
    "hangs": "bad",
    "sent back": "warn",
    "waits": "busy",
    "runs": "busy",
    "skipped": "calm",
    "finished": "good",
}
"""Colours of how a group stands with a message, those that need somebody first."""


class Answer(NamedTuple):
    """What became of a message in one group."""

    group: str
    standing: str
    """As :class:`rmqclient.admin.life.Standing` has it."""
    text: str
    """Begins after the name of the group."""
    at_ms: int | None
    """When it became so, if that is known."""
    record: ReceivedMessage | None
    """The dead letter, or the copy that waits or runs."""


def answers_of(life: list[Step], groups: Iterable[Group]) -> list[Answer]:
    """Return how each group stands with the message of a life, those that need somebody first."""
    last: dict[str, Step] = {}
    lives: dict[str, list[Step]] = {}
    for step in life:
        lives.setdefault(step.group, []).append(step)
        if step.standing:
            last[step.group] = step
    states = {each.group: each.state for each in groups}
    found = [_answer(group, step, lives[group], states.get(group, "")) for group, step in last.items()]
    return sorted(found, key=lambda each: (list(TONES).index(each.standing), each.group))


def _answer(group: str, now: Step, of: list[Step], state: str) -> Answer:
    failed = [step for step in of if step.event == "failed"]
    attempts = "1 attempt" if len(failed) == 1 else f"{len(failed)} attempts"
    why = _why(failed[-1]) if failed else ""
    if now.standing == "given up":
        letter = next((step for step in reversed(of) if step.event == "dead letter"), now)
        settled = next((step.event for step in reversed(of) if step.event in ("replayed", "purged")), "")
        rest = {"": "It is a dead letter", "replayed": "Its dead letter was replayed", "purged": "It was dropped"}
        return Answer(
            group,
            now.standing,
            " ".join(filter(None, (f"failed for good after {attempts}. {why}", _finished(of), f"{rest[settled]}."))),
            letter.at_ms,
            letter.record,
        )
    if now.standing == "sent back":
        delays = [step.until_ms for step in of if step.event == "delayed" and step.until_ms]
        return Answer(
            group,
            now.standing,
            _pause(of) or f"failed in {attempts} and tries again. {why} {_finished(of)}".strip(),
            max(delays, default=None),
            now.record,
        )
    if now.standing in ("runs", "hangs"):
        text = f"{now.detail}{f', {now.worker}' if now.worker else ''}. {_finished(of)}"
        return Answer(group, now.standing, text.strip(), None, now.record)
    if now.standing == "finished":
        done = next((step for step in reversed(of) if step.event == "handled"), None)
        took = f" in {done.took_ms:,} ms" if done and done.took_ms is not None else ""
        after = f" after {attempts} that failed" if failed else ""
        return Answer(group, now.standing, f"handled it{took}{after}.", done.at_ms if done else None, now.record)
    text = now.detail + (f"; the group is {state}" if now.standing == "waits" and state not in ("running", "") else "")
    return Answer(
        group,
        now.standing,
        f"has not handled it: {text}. {why}".strip() if now.standing == "waits" else f"{text}.",
        None,
        now.record,
    )


def _pause(of: list[Step]) -> str:
    """Return for what a durable step waits now, before the time when that ends; empty if none does."""
    pause = None
    for step in of:
        if step.event in ("sleeps", "waits"):
            pause = step
        elif step.event in ("step", "signal", "time is up", "woken", "failed"):
            pause = None
    if pause is None:
        return ""
    behind = f" behind its step {ended[-1]}" if (ended := _ended(of)) else ""
    if pause.event == "sleeps":
        return f"sleeps{behind}, until"
    return f"waits for the signal {pause.detail.rpartition(' until ')[0]}{behind}, at most until"


def _finished(of: list[Step]) -> str:
    """Return the last durable step that has ended, in a sentence; empty if none has."""
    return f"Its last finished step is {ended[-1]}." if (ended := _ended(of)) else ""


def _ended(of: list[Step]) -> list[str]:
    return [step.detail.partition(", ")[0] for step in of if step.event == "step"]


def _why(failed: Step) -> str:
    _, _, error = failed.detail.partition(": ")
    place = raised_in(failed.trace)
    return f"{error.rstrip('.')}{f', in {place}' if place else ''}."
