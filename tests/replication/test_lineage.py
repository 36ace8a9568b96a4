"""Epochs: where two logs part, for every history that two stores can have, and the file that RocketMQ writes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rmqclient.errors import StoreCorrupt
from rmqclient.store.settings.lineage import (
    EPOCHS_FILE,
    Epoch,
    Epochs,
    Lineage,
    after_promotion,
    begun,
    common_end,
    cut,
    read_lineage,
    write_lineage,
)


@dataclass
class Log:
    """A log whose bytes are numbers that nobody else writes, and its epochs."""

    content: list[int] = field(default_factory=list)
    epochs: Epochs = (Epoch(1, 0),)


def shared(one: Log, other: Log) -> int:
    """Return how many bytes two logs share from their begin."""
    pairs = zip(one.content, other.content, strict=False)
    return next(
        (at for at, (left, right) in enumerate(pairs) if left != right), min(map(len, (one.content, other.content)))
    )


@pytest.mark.guarantee("G80")
def test_epochs_say_exactly_where_two_logs_part_after_any_promotions_with_or_without_messages_between() -> None:
    chance = random.Random(20)
    for _ in range(600):
        # Given two hosts that take turns: what the primary writes comes to the other one in part
        primary, replica, number = Log(), Log(), 0
        for _ in range(chance.randrange(1, 8)):
            for _ in range(chance.choice((0, 0, 1, 5))):
                number += 1
                primary.content.append(number)
            replica.content = primary.content[: chance.randrange(len(replica.content), len(primary.content) + 1)]
            replica.epochs = primary.epochs

            # And the primary has lost power since, and the other one has not heard of its epochs
            for _ in range(chance.choice((0, 0, 1, 3))):
                del primary.content[chance.randrange(len(replica.content), len(primary.content) + 1) :]
                primary.epochs = begun(primary.epochs, len(primary.content), primary.epochs[-1].number + 1)
                for _ in range(chance.choice((0, 2))):
                    number += 1
                    primary.content.append(number)

            # When the other one is promoted, and writes
            replica.epochs = begun(replica.epochs, len(replica.content), after_promotion(replica.epochs[-1].number))
            assert replica.epochs[-1].number > primary.epochs[-1].number
            for _ in range(chance.choice((0, 0, 1, 5))):
                number += 1
                replica.content.append(number)
            for _ in range(chance.choice((0, 0, 3))):  # nobody has told the old one yet
                number += 1
                primary.content.append(number)

            # Then the epochs say where to cut, whoever asks
            old, new = primary, replica
            end = common_end(old.epochs, len(old.content), new.epochs, len(new.content))
            assert end == shared(old, new) == common_end(new.epochs, len(new.content), old.epochs, len(old.content))
            old.content, old.epochs = old.content[:end], cut(old.epochs, end)
            primary, replica = new, old


def test_two_stores_whose_epochs_have_nothing_in_common_share_nothing_that_is_known() -> None:
    assert common_end((Epoch(3, 500),), 900, (Epoch(4, 600),), 700) is None
    assert common_end((), 900, (Epoch(1, 0),), 700) is None
    assert common_end((Epoch(1, 0),), 50, (Epoch(2, 0),), 0) == 0


def test_epochs_of_one_number_that_begin_elsewhere_are_not_the_same() -> None:
    assert common_end((Epoch(1, 0), Epoch(2, 500)), 900, (Epoch(1, 0), Epoch(2, 600)), 700) == 500


def test_epochs_are_written_as_rocketmq_writes_them(tmp_path: Path) -> None:
    lineage = Lineage("ab" * 16, (Epoch(1, 0), Epoch(2, 299_134)))
    write_lineage(tmp_path, lineage)
    assert (tmp_path / EPOCHS_FILE).read_bytes() == b"2\n184814133\n1-0\n2-299134\n"  # recorded
    assert read_lineage(tmp_path) == lineage


@pytest.mark.parametrize(
    "content", [b"2\n184814134\n1-0\n2-299134\n", b"3\n0\n1-0\n2-299134\n", b"1\n0\n1\n", b"2\n0\n2-5\n1-9\n", b"x"]
)
def test_a_damaged_list_of_epochs_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / EPOCHS_FILE).write_bytes(content)
    with pytest.raises(StoreCorrupt):
        read_lineage(tmp_path)
