"""Histories that the tests of the checker tell."""

from __future__ import annotations

from tests.checker.history import Kind
from tests.checker.plan import Mode
from tests.checker.story import WORKER, Story, message


def poison_story(attempts: int, *, dead: bool = True) -> Story:
    """Tell of one message that fails so often; the seed makes message 0 poison."""
    story = Story(Mode.POISON)
    story = Story(Mode.POISON, seed=(story.plan.seed - story.plan.seed_of(message(0))) % (1 << 32))
    story.send(range(1))
    story.grant(WORKER, 1)
    retry_queue = story.plan.queue_numbers["%RETRY%group0", 0]
    for attempt in range(attempts):
        queue = retry_queue if attempt else 0
        offset = max(attempt - 1, 0)
        story.write(WORKER, Kind.HANDLE, subject=message(0), offset=offset, queue=queue, detail=1)
        story.write(WORKER, Kind.HANDLE_FAILED, subject=message(0), offset=offset, queue=queue)
        story.commit(WORKER, offset, queue=queue)
    if dead:
        story.store(message(0), queue=story.plan.queue_numbers["%DLQ%group0", 0])
    return story
