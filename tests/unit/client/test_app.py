"""Registering handlers: mistakes are told at once, and no store is touched."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqclient import Batch, jmespath, sql
from rmqclient.allocation import nearby
from rmqclient.app import App
from rmqclient.duration import Duration
from rmqclient.errors import HandlerError, InvalidName
from rmqclient.failures.retry import RetryPolicy
from rmqclient.filters import Filter
from rmqclient.handler import Handler
from rmqclient.names import function_name
from rmqclient.store import StoreConfig


def handle(message: object) -> None: ...
async def handle_async(message: object) -> None: ...


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(tmp_path / "store")


def test_the_decorator_returns_the_function_itself_and_registers_it(app: App) -> None:
    assert app.handler("orders", group="billing", tags="refunded||paid", threads=4)(handle) is handle
    assert app.handlers == [
        Handler(topic="orders", group="billing", tags="paid || refunded", threads=4, function=handle)
    ]


def test_an_async_function_stays_one(app: App) -> None:
    @app.handler("orders", group="billing")
    async def serve(message: object) -> str:
        return "served"

    assert asyncio.run(serve(b"")) == "served"
    assert app.handlers[0].function is serve


def test_without_more_a_handler_takes_every_message_in_one_thread(app: App) -> None:
    app.handler("orders", group="billing")(handle)
    app.handler("orders", group="other", tags=None)(handle)
    assert [(each.tags, each.threads) for each in app.handlers] == [("*", 1), ("*", 1)]


def test_handlers_stand_in_the_order_of_their_registration(app: App) -> None:
    for topic in ("c", "a", "b"):
        app.handler(topic, group="billing")(handle)
    assert [each.topic for each in app.handlers] == ["c", "a", "b"]


def test_a_group_may_take_several_topics_and_a_topic_may_have_several_groups(app: App) -> None:
    for topic, group in (("orders", "billing"), ("refunds", "billing"), ("orders", "stock")):
        app.handler(topic, group=group)(handle)
    assert len(app.handlers) == 3


def test_dead_letters_can_be_handled(app: App) -> None:
    app.handler("%DLQ%billing", group="undertaker")(handle)
    assert app.handlers[0].topic == "%DLQ%billing"


# --- the store ---------------------------------------------------------------------------------------------------


def test_the_argument_names_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQ_STORE", "elsewhere")
    assert App(tmp_path).root == App(str(tmp_path)).root == tmp_path


def test_the_environment_names_the_store_when_there_is_no_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App()
    monkeypatch.setenv("RMQ_STORE", str(tmp_path))
    assert app.root == tmp_path


def test_a_relative_name_is_meant_from_the_directory_where_the_app_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = App("data/store")
    monkeypatch.chdir("..")
    assert app.root == tmp_path / "data" / "store"


def test_the_home_directory_may_be_abbreviated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert App("~/store").root == tmp_path / "store"


@pytest.mark.parametrize("argument", [None, ""])
def test_an_app_without_a_store_says_both_ways_to_name_one_when_it_is_asked(
    argument: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMQ_STORE", "")
    app = App(argument)
    with pytest.raises(HandlerError, match=r'App\("path/to/store"\).*RMQ_STORE'):
        _ = app.root


@pytest.mark.parametrize("kind", [{"config": {"max_body_bytes": 1}}, {"config": "small"}, {"consumer": StoreConfig()}])
def test_settings_of_another_kind_are_refused_where_they_are_given(tmp_path: Path, kind: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        App(tmp_path, **kind)


@pytest.mark.parametrize("url", ["http://host:9876", "redis://host", "file:///data/store"])
def test_a_url_of_another_scheme_is_refused_where_it_is_given(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no backend is known for the scheme"):
        App(url)
    monkeypatch.setenv("RMQ_STORE", url)
    with pytest.raises(ValueError, match="no backend is known for the scheme"):
        _ = App().root


def test_no_store_is_touched(tmp_path: Path) -> None:
    app = App(tmp_path / "store", config=StoreConfig())
    app.handler("orders", group="billing")(handle)
    assert (app.root, repr(app)) == (tmp_path / "store", f"App({str(tmp_path / 'store')!r}, 1 handlers)")
    assert list(tmp_path.iterdir()) == []


# --- several modules ---------------------------------------------------------------------------------------------


def test_an_application_may_be_made_of_several(app: App) -> None:
    app.handler("orders", group="billing")(handle)
    orders = App()
    orders.handler("orders", group="stock")(handle_async)
    orders.schedule("* * * * *", topic="reports", name="report")(lambda: None)
    app.include(orders)
    assert [each.group for each in app.handlers] == ["billing", "stock"]
    assert [each.name for each in app.crons] == ["report"]


def test_an_application_that_has_the_same_handler_or_schedule_is_not_included(app: App) -> None:
    for each in (app, handlers := App(), crons := App()):
        if each is not crons:
            each.handler("orders", group="billing")(handle)
        if each is not handlers:
            each.schedule("* * * * *", topic="reports", name="report")(lambda: None)
    with pytest.raises(HandlerError, match="already handled for group 'billing'"):
        app.include(handlers)
    with pytest.raises(HandlerError, match="has a schedule 'report' already"):
        app.include(crons)
    with pytest.raises(HandlerError, match="already handled"):
        app.include(app)
    assert (len(app.handlers), len(app.crons)) == (1, 1)


# --- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topic", "group"), [("or.ders", "billing"), ("orders", ""), ("orders", "bill ing")])
def test_a_bad_name_is_refused(app: App, topic: str, group: str) -> None:
    with pytest.raises(InvalidName):
        app.handler(topic, group=group)


def test_a_retry_topic_is_not_handled_directly(app: App) -> None:
    with pytest.raises(HandlerError, match="takes the messages of its retry topic by itself"):
        app.handler("%RETRY%billing", group="billing")


def test_a_group_leaves_room_for_the_name_of_its_retry_topic(app: App) -> None:
    app.handler("orders", group="g" * 120)(handle)
    with pytest.raises(HandlerError, match=r"has 121 characters.*use at most 120"):
        app.handler("orders", group="g" * 121)


def test_bad_tags_are_refused(app: App) -> None:
    with pytest.raises(ValueError, match="alternative 2 of 2 is empty"):
        app.handler("orders", group="billing", tags="paid || ")


@pytest.mark.parametrize(
    ("allocation", "said"),
    [
        ("random", "no allocation strategy 'random'"),
        ("config", r"needs settings: give configured\(\{member: queues\}\)"),
        ("machine_room_nearby", r"needs settings: give nearby\(room_of, inner\)"),
        (7, "allocation=7: give a name, or a function"),
        (nearby, "give a name, or a function"),
    ],
)
def test_an_allocation_that_is_no_strategy_is_refused(app: App, allocation: Any, said: str) -> None:
    with pytest.raises(HandlerError, match=said):
        app.handler("orders", group="billing", allocation=allocation)


def test_an_allocation_is_a_name_or_a_function(app: App) -> None:
    by_room = nearby(lambda _: "room")
    for number, allocation in enumerate(("sticky", by_room, handle)):
        app.handler("orders", group=f"g{number}", allocation=allocation)(handle)  # type: ignore[arg-type]
    assert [each.allocation for each in app.handlers] == ["sticky", by_room, handle]


@pytest.mark.parametrize("threads", [0, -1, 1001, True, 2.0, "4", None])
def test_a_number_of_threads_out_of_bounds_is_refused(app: App, threads: Any) -> None:
    with pytest.raises(HandlerError, match="1 to 1,000 threads"):
        app.handler("orders", group="billing", threads=threads)


@pytest.mark.parametrize("order", ["queues", 1, True, "KEY", ["queue"]])
def test_another_order_is_refused(app: App, order: Any) -> None:
    with pytest.raises(HandlerError, match=r'use "queue" for the order of each queue, "key"'):
        app.handler("orders", group="billing", order=order)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 100}, "batch=100: give a batch, such as Batch"),
        ({"batch": True}, "give a batch"),
        ({"order": "key", "batch": Batch(2)}, 'use order="queue", or leave batch out'),
        ({"replies": True, "batch": Batch(2)}, "leave batch out"),
        ({"order": "queue", "retry": RetryPolicy(delay_levels=(1,))}, "without a delay or a delay level"),
        ({"order": "key", "retry": RetryPolicy(delays=(1.0,))}, "without a delay or a delay level"),
    ],
)
def test_options_out_of_their_limits_or_that_do_not_go_together_are_refused(
    app: App, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(HandlerError, match=message):
        app.handler("orders", group="billing", **options)


@pytest.mark.parametrize(
    ("size", "linger", "message"),
    [
        (1, 0, "from 2 to 1,024"),
        (1_025, 0, "from 2 to 1,024"),
        (True, 0, "from 2 to 1,024"),
        (2, -1, r"linger=-1: must be from 0 s to 60 s"),
        (2, 60.1, "from 0 s to 60 s"),
        (2, timedelta(minutes=2), "from 0 s to 60 s"),
        (2, "5", "linger='5': give a timedelta, or a number of seconds"),
    ],
)
def test_a_batch_out_of_its_limits_is_refused(size: Any, linger: Any, message: str) -> None:
    with pytest.raises(HandlerError, match=message):
        Batch(size, linger)


@pytest.mark.parametrize("linger", [0.25, timedelta(milliseconds=250)])
def test_a_batch_lingers_for_a_timedelta_or_for_seconds(app: App, linger: Duration) -> None:
    app.handler("orders", group="billing", batch=Batch(2, linger))(handle)
    batch = app.handlers[0].batch
    assert batch is not None
    assert (batch.size, batch.linger_s) == (2, 0.25)


def test_a_handler_whose_order_is_kept_retries_for_ever_unless_it_says_otherwise(app: App) -> None:
    app.handler("orders", group="a", order="queue")(handle)
    app.handler("orders", group="b", order="key", retry=RetryPolicy(max_retries=3))(handle)
    app.handler("orders", group="c")(handle)
    assert [each.retry.max_retries for each in app.handlers] == [2**31 - 1, 3, 16]


@pytest.mark.parametrize("threads", [1, 1000])
def test_a_number_of_threads_at_the_bounds_is_accepted(app: App, threads: int) -> None:
    app.handler("orders", group="billing", threads=threads)(handle)


class Service:
    def serve(self, message: object) -> None: ...
    def __call__(self, message: object) -> None: ...


def no_parameter() -> None: ...
def two_parameters(message: object, other: object) -> None: ...
def a_second_with_default(message: object, other: object = None) -> None: ...
def any_number(*messages: object) -> None: ...
def only_by_keyword(*, message: object) -> None: ...
def a_keyword_besides(message: object, *, other: object) -> None: ...
def a_keyword_with_default(message: object, *, other: object = None, **more: object) -> None: ...
def by_position(message: object, /) -> None: ...


def generates(message: object) -> Any:
    yield message


async def generates_async(message: object) -> Any:
    yield message


@pytest.mark.parametrize(
    "function",
    [
        handle, handle_async, by_position, a_keyword_with_default, Service().serve, Service(), lambda message: message,
        partial(two_parameters, other=1), partial(two_parameters, 1),
    ],
    ids=function_name,
)  # fmt: skip
def test_whatever_takes_one_positional_argument_can_be_a_handler(app: App, function: Callable[..., Any]) -> None:
    app.handler("orders", group="billing")(function)


@pytest.mark.parametrize(
    "function",
    [
        no_parameter, two_parameters, a_second_with_default, any_number, only_by_keyword, a_keyword_besides,
        Service.serve,
    ],
    ids=function_name,
)  # fmt: skip
def test_another_signature_is_refused_and_the_right_one_shown(app: App, function: Callable[..., Any]) -> None:
    with pytest.raises(HandlerError, match=r"A handler takes the message or its body.*def handle") as refused:
        app.handler("orders", group="billing")(function)
    assert function_name(function) in str(refused.value)
    assert app.handlers == []


@pytest.mark.parametrize("start", ["earliest", "latest", datetime(2026, 11, 20, 10, tzinfo=UTC)])
def test_a_new_group_may_start_at_either_end_or_at_a_time(app: App, start: Any) -> None:
    app.handler("orders", group="billing", start=start)(handle)
    assert app.handlers[0].start == start


@pytest.mark.parametrize("start", ["first", None, 0, datetime(2026, 11, 20, 10)])  # noqa: DTZ001 - what is refused
def test_another_start_is_refused(app: App, start: Any) -> None:
    with pytest.raises(HandlerError, match=r"start=.*time zone"):
        app.handler("orders", group="billing", start=start)
    assert app.handlers == []


@pytest.mark.parametrize(
    "option",
    [{"order": "queue"}, {"order": "key"}, {"batch": Batch(2)}, {"retry": RetryPolicy()}, {"allocation": "circle"}],
    ids=str,
)
def test_a_broadcast_handler_cannot_have_what_belongs_to_shared_queues(app: App, option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(HandlerError, match=f"broadcast=True with {name}=.*: leave {name} out"):
        app.handler("orders", group="billing", broadcast=True, **option)


@pytest.mark.parametrize("function", [generates, generates_async])
def test_a_generator_is_refused_because_calling_it_runs_nothing(app: App, function: Callable[..., Any]) -> None:
    with pytest.raises(HandlerError, match="contains `yield`"):
        app.handler("orders", group="billing")(function)


@pytest.mark.parametrize("function", [5, None, "handle"])
def test_what_cannot_be_called_is_refused(app: App, function: Any) -> None:
    with pytest.raises(HandlerError, match="is not a function"):
        app.handler("orders", group="billing")(function)


def test_a_topic_has_one_handler_for_each_group(app: App) -> None:
    app.handler("orders", group="billing")(handle)
    with pytest.raises(HandlerError) as refused:
        app.handler("orders", group="billing")(handle_async)
    assert str(refused.value) == (
        f"topic 'orders' is already handled for group 'billing' by {__name__}:handle, so {__name__}:handle_async "
        "cannot be: use another group, or one function that calls both"
    )
    assert [each.function for each in app.handlers] == [handle]


def test_a_second_handler_with_other_tags_is_refused_and_both_tags_named(app: App) -> None:
    app.handler("orders", group="billing", tags="paid")(handle)
    with pytest.raises(HandlerError, match=r"other tags \('paid' there, 'refunded' here\).*with the tags of both"):
        app.handler("orders", group="billing", tags="refunded")(handle)


def test_apps_know_nothing_of_each_other(tmp_path: Path) -> None:
    for _ in range(2):
        App(tmp_path).handler("orders", group="billing")(handle)


@pytest.mark.guarantee("G15")
@pytest.mark.parametrize(
    ("make", "expression", "problem"),
    [
        (sql, "region == 'eu'", "column 9"),
        (sql, "region = 'eu' oops", "column 15"),
        (jmespath, "total >", "column 8"),
        (jmespath, "nope(total)", "there is no function nope()"),
        (sql, 5, "a str, not int"),
    ],
)
def test_a_bad_filter_is_refused_where_it_is_written(
    make: Callable[[Any], Filter], expression: Any, problem: str
) -> None:
    app = App("store")
    with pytest.raises(HandlerError, match=re.escape(problem)):
        app.handler("orders", group="billing", filter=make(expression))
    assert app.handlers == []


def test_an_expression_without_its_language_is_refused(app: App) -> None:
    with pytest.raises(HandlerError, match=r"filter='a = 1': give sql\(...\), jmespath\(...\)"):
        app.handler("orders", group="billing", filter="a = 1")  # type: ignore[arg-type]


@pytest.mark.parametrize("filter_", [sql("a IS NULL"), jmespath("a")])
def test_two_handlers_of_a_group_with_different_filters_are_told_so(filter_: Filter) -> None:
    def print_it(message: object) -> None: ...

    app = App("store")
    app.handler("orders", group="billing", filter=filter_)(print_it)
    with pytest.raises(HandlerError, match="with other filter"):
        app.handler("orders", group="billing")(print_it)


def test_a_policy_that_is_none_is_refused_with_an_example() -> None:
    with pytest.raises(HandlerError, match=r"retry=3: give a policy, such as RetryPolicy\(max_retries=3"):
        App("store").handler("orders", group="billing", retry=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"processes": 0}, ValueError),
        ({"processes": 1.5}, TypeError),
        ({"timeout": -1}, ValueError),
        ({"time_limit": 0}, ValueError),
        ({"time_limit": "15m"}, TypeError),
        ({"member_name": "a b"}, InvalidName),
    ],
)
def test_workers_out_of_their_limits_are_refused_where_they_are_asked_for(
    app: App, options: dict[str, Any], error: type[Exception]
) -> None:
    app.handler("orders", group="billing")(handle)
    with pytest.raises(error):
        app.workers(**options)


def test_workers_of_an_application_without_a_handler_are_refused(app: App) -> None:
    with pytest.raises(HandlerError), app.workers(processes=1):
        raise AssertionError("there is nothing to do")
