"""The exceptions: all in one place, drawn as they are, and the same after a journey between processes."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from rmqclient import errors
from rmqclient.errors import FilterError, LettersRejected, QueueError, RecordsDamaged, StoreCorrupt, TransactionDecided

CLASSES = [getattr(errors, name) for name in errors.__all__]


def test_every_exception_raised_on_purpose_can_be_imported_from_one_place() -> None:
    assert {error.__name__ for error in subclasses(QueueError)} | {"QueueError"} == set(errors.__all__)


def test_the_drawn_tree_is_the_tree_of_the_classes() -> None:
    assert drawn(errors.__doc__ or "") == {
        error.__name__: next(base.__name__ for base in error.__bases__ if base in {*CLASSES, Exception})
        for error in CLASSES
    }


@pytest.mark.parametrize("error", CLASSES, ids=errors.__all__)
def test_an_exception_says_what_it_means_and_what_to_do_next(error: type[QueueError]) -> None:
    assert error.__doc__
    assert isinstance(error.retryable, bool)
    assert isinstance(error.stored, bool)


@pytest.mark.parametrize("error", CLASSES, ids=errors.__all__)
def test_an_exception_survives_pickling(error: type[QueueError]) -> None:
    made = example(error)
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is error
    assert str(again) == str(made)
    assert vars(again) == vars(made)


def example(error: type[QueueError]) -> QueueError:
    if issubclass(error, StoreCorrupt):
        return error(Path("commitlog/0"), 7, "torn")
    if issubclass(error, RecordsDamaged):
        return error(7, 100, "torn")
    if issubclass(error, TransactionDecided):
        return error("decided", committed=True)
    if issubclass(error, FilterError):
        return error("unknown word", column=3)
    if issubclass(error, LettersRejected):
        return error(("7F0000010000000000000000000000AA",), "it has no key")
    return error("text")


def drawn(text: str) -> dict[str, str]:
    """Return the parent of each class of the drawn tree."""
    parents: dict[str, str] = {}
    above = ["Exception"]
    for line in text.splitlines():
        if found := re.match(r"    ((?:[│├└─ ]{4})*)([A-Z]\w+)", line):
            depth = len(found[1]) // 4
            parents[found[2]] = above[depth]
            above[depth + 1 :] = [found[2]]
    return parents


def subclasses(error: type[Exception]) -> set[type[Exception]]:
    direct = {each for each in error.__subclasses__() if each.__module__.partition(".")[0] == "rmqclient"}
    return direct.union(*(subclasses(each) for each in direct))
