"""Numbers of settings and arguments: what cannot be meant is refused where it is given, by name, value and limit."""

import dataclasses
import math
from typing import Any, TypeAlias

import pytest

from rmqclient import (
    Batch,
    CompactionConfig,
    ConsumerConfig,
    FlushConfig,
    RetentionConfig,
    RetryPolicy,
    StoreConfig,
    TransactionConfig,
)
from rmqclient.allocation import hashed
from rmqclient.broker.limits.limits import Limits
from rmqclient.errors import HandlerError
from rmqclient.names import check_queue_count
from rmqclient.store.numbers import MOST_BYTES, MOST_INT, MOST_MS, positive_s, switch, whole

Case: TypeAlias = tuple[Any, str]

SETTINGS: tuple[Any, ...] = (
    StoreConfig,
    FlushConfig,
    RetentionConfig,
    CompactionConfig,
    TransactionConfig,
    ConsumerConfig,
    Limits,
    hashed,
)
OF_KIND = {
    kind: [(made, each.name) for made in SETTINGS for each in dataclasses.fields(made) if each.type == kind]
    for kind in ("int", "float", "bool")
}


def names(case: Case) -> str:
    return f"{case[0].__name__}.{case[1]}"


@pytest.mark.parametrize("case", OF_KIND["int"], ids=names)
@pytest.mark.parametrize("value", [True, 1.5, math.nan, math.inf, "5", None, -1, 10**30])
def test_a_setting_that_is_a_whole_number_takes_no_other_value(case: Case, value: object) -> None:
    made, name = case
    with pytest.raises((TypeError, ValueError), match=name) as raised:
        made(**{name: value})
    assert str(value) in str(raised.value)


@pytest.mark.parametrize("case", OF_KIND["float"], ids=names)
@pytest.mark.parametrize("value", [True, math.nan, math.inf, "5", None, -1, 10**30])
def test_a_setting_that_is_a_number_takes_no_other_value(case: Case, value: object) -> None:
    made, name = case
    with pytest.raises((TypeError, ValueError), match=name):
        made(**{name: value})


@pytest.mark.parametrize("case", OF_KIND["bool"], ids=names)
@pytest.mark.parametrize("value", [0, 1, "no", None])
def test_a_setting_that_is_a_switch_takes_no_other_value(case: Case, value: object) -> None:
    made, name = case
    with pytest.raises(TypeError, match=name):
        made(**{name: value})


def test_defaults_and_limits_are_taken() -> None:
    for made in SETTINGS:
        made()
    FlushConfig(interval_ms=MOST_MS)
    RetentionConfig(disk_reserve_bytes=MOST_BYTES, file_reserved_hours=1_000_000)
    RetryPolicy(max_retries=MOST_INT)
    Limits(frame_s=0.001, idle_s=MOST_MS / 1000)


@pytest.mark.parametrize(
    ("name", "value"),
    [("durability", "sync"), ("durability", None), ("flush", {}), ("retention", None), ("transactions", 5)],
)
def test_what_is_no_setting_of_its_kind_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=name):
        StoreConfig(**{name: value})


@pytest.mark.parametrize("value", [True, 2.0, "2", -1, 10**30])
def test_the_options_of_handlers_take_whole_numbers(value: Any) -> None:
    for refused in (lambda: RetryPolicy(max_retries=value), lambda: Batch(value)):
        with pytest.raises(HandlerError, match=str(value)):
            refused()


@pytest.mark.parametrize("value", [True, 2.0, "2", 0, -1])
def test_a_number_of_queues_is_a_whole_number(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="queue_count"):
        check_queue_count(value)


def test_what_is_taken_is_returned() -> None:
    assert (whole("n", 0), whole("n", 7, 7, 7), positive_s("s", 0.5), switch("b", value=False)) == (0, 7, 0.5, False)
