"""An append whose process has closed the store meanwhile: it must not write over what the next processes append."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.errors import StoreClosed
from tests.support.oracle.views import bodies, queued_records
from tests.support.stores import SMALL, TOPIC, abandon, appender_of


def both_close(first: MessageStore, second: MessageStore) -> None:
    first.close()
    second.close()


def the_other_is_killed(first: MessageStore, second: MessageStore) -> None:
    first.close()
    abandon(second)


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("leave", [both_close, the_other_is_killed])
def test_a_late_append_is_refused_and_the_messages_of_the_next_process_stay(
    tmp_path: Path, leave: Callable[[MessageStore, MessageStore], None]
) -> None:
    # Given a thread that is about to append when the last processes leave the store
    late, other = (open_store(tmp_path, SMALL, housekeeping=False) for _ in range(2))
    about_to_append = appender_of(late)
    about_to_append.append(Message(TOPIC, b"first"))
    leave(late, other)

    # When the next one has opened the store and appended to it
    with open_store(tmp_path, SMALL, housekeeping=False) as store:
        appender_of(store).append(Message(TOPIC, b"second"))

        # Then the late append is refused, and changes nothing
        with pytest.raises(StoreClosed, match="nothing was written"):
            about_to_append.append(Message(TOPIC, b"late"))
        appender_of(store).append(Message(TOPIC, b"third"))
        assert bodies(queued_records(store)) == [b"first", b"second", b"third"]
