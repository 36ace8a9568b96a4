"""Failure: what the history of a message says, and that it always fits."""

from __future__ import annotations

import random

import pytest

from rmqclient import Message, Producer
from rmqclient.failures.failure import HISTORY, Failure, history, with_failures
from rmqclient.failures.retry import Retries, RetryPolicy
from rmqclient.opening import open_backend
from rmqclient.store.layout import MAX_PROPERTIES_BYTES
from rmqclient.store.message_store import open_store


def deep(frames: int) -> None:
    if frames:
        deep(frames - 1)
    raise ValueError("at the bottom")


def failed(attempt: int, text: str = "no", frames: int = 0) -> Failure:
    try:
        if frames:
            deep(frames)
        raise ValueError(text)
    except ValueError as error:
        return Failure.raised(error, attempt, "worker-1")


def test_the_history_says_what_failed_when_where_and_how() -> None:
    properties = with_failures({"mine": "1"}, [failed(1, frames=3)])
    properties = with_failures(properties, [failed(2, "again")])
    first, second = history(properties)
    assert properties["mine"] == "1"
    assert (first["attempt"], first["error"], first["text"], first["worker"]) == (
        1,
        "ValueError",
        "at the bottom",
        "worker-1",
    )
    assert "in deep" in first["trace"]
    assert (second["attempt"], second["text"]) == (2, "again")
    assert first["at"] <= second["at"]


def test_halves_of_surrogate_pairs_are_told_as_text_also_of_a_history_that_has_them() -> None:
    properties = with_failures({HISTORY: '[{"text": "\\ud83d", "worker": "w"}]'}, [failed(2, "no \ud83d")])
    texts = [each["text"] for each in history(properties)]
    assert texts == ["\\ud83d", "no \\ud83d"]
    assert "ud83d" not in properties[HISTORY].replace("\\\\ud83d", ""), "no half is stored"


def test_the_history_never_takes_more_than_its_share_or_what_there_is_room_for() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(60):
        others = {"a": "x" * chance.choice([0, 100, 24_000, 31_000, 32_000, 32_300]) or "y"}
        properties = dict(others)
        for attempt in range(1, 20):
            text = chance.choice(["\x01\x02\x00", "ü" * 400, '"\\' * 300, "z" * 10_000])
            properties = with_failures(properties, [failed(attempt, text, chance.choice([1, 40]))])
            told = properties.get(HISTORY, "")
            assert len(told) <= 8 * 1024
            assert not {"\x01", "\x02"} & set(told)
            assert sum(len(k.encode()) + len(v.encode()) + 2 for k, v in properties.items()) <= max(
                MAX_PROPERTIES_BYTES - 512, len(others["a"]) + 3
            )
        entries = history(properties)
        if entries and len(others["a"]) < 24_000:
            assert (entries[0]["attempt"], entries[-1]["attempt"]) == (1, 19), "the first and the last stay"
            assert "trace" in entries[-1]


def test_a_history_that_somebody_else_wrote_is_left_out() -> None:
    assert history({HISTORY: "rubbish"}) == []
    assert history({HISTORY: "3"}) == []
    assert history({HISTORY: "[1]"}) == []


def test_an_exception_that_cannot_say_what_it_is_is_still_told() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    failure = Failure.raised(Mute(), 1, "w")
    assert failure.text == "(no text: RuntimeError)"
    assert failure.error.endswith("Mute")


def test_after_memory_ran_out_what_the_handler_held_is_let_go() -> None:
    held: list[object] = []

    class Hog:
        def __del__(self) -> None:
            held.append("let go")

    def handle() -> None:
        hog = Hog()
        raise MemoryError(str(id(hog)))

    with pytest.raises(MemoryError) as raised:
        handle()
    assert held == []
    Failure.raised(raised.value, 1, "w")
    assert held == ["let go"]


@pytest.mark.parametrize("size", [100, 24_000, 30_900])
def test_a_message_with_large_properties_can_be_sent_back(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    with open_store(tmp_path_factory.mktemp("large") / "store", housekeeping=False) as store:
        with Producer(store) as producer:
            sent = producer.send(Message("t", b"", properties={"large": "x" * size}))
        message = store.messages.read(sent.commit_log_offset)
        retries = Retries(open_backend(store), "g", RetryPolicy(max_retries=0), "me")
        retries.send_back(message, failed(1))
        (queue,) = store.topics.queues("%DLQ%g")
        assert store.messages.at(queue, 0).properties["large"] == "x" * size
