"""Every view of a store shows the same of a group: its lag, owners, members and state, and what waits for a retry."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.consuming import strain
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.health import findings
from rmqclient.health.findings import CRITICAL
from rmqclient.health.limits import Limits
from rmqclient.metrics import Source
from rmqclient.remoting.bodies import ConsumerConnection, ConsumeStats
from rmqclient.remoting.codes import RequestCode
from rmqclient.store import MessageStore, boottime, open_store
from rmqclient.store.observe import states
from rmqclient.store.observe.reading import Reading
from rmqclient.store.observe.summary import Group, groups_of
from tests.broker.asking import asking
from tests.workers.commands.test_cli import data, run
from tests.workers.supervised import eventually

FAILED, BEHIND = 3, 5
NAMES = ["first", "second"]
"""Client ids. Both are of this process, so members are not processes."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessageStore]:
    """A group of two members: of one queue a message runs and others are behind it, and three wait for their retry."""
    monkeypatch.setattr(strain, "KEPT_S", 3_600.0)  # or the other member gets the queues of this one after a second
    app, go_on = App(root), threading.Event()

    @app.handler("orders", group="billing", threads=1, retry=RetryPolicy(delays=(3_600,)))
    def bill(message: ReceivedMessage) -> None:
        if message.body == b"fail":
            raise ValueError
        go_on.wait(600)

    with ExitStack() as opened:
        store = opened.enter_context(open_store(root))
        producer = opened.enter_context(Producer(store))
        producer.create_topic("orders", 2)
        for name in NAMES:
            consumer = opened.enter_context(closing(PushConsumer(store, app.handlers, client_id=name)))
            consumer.start()
        opened.callback(go_on.set)
        eventually(
            lambda: len({owner for owner in owners(seen(root)).values() if owner}) == len(NAMES), "each has some"
        )
        for _ in range(FAILED):
            producer.send(Message("orders", b"fail"))
        eventually(lambda: seen(root).waiting == FAILED, "they wait")
        for _ in range(BEHIND):
            producer.send(Message("orders", b"block"), sharding_key="one")
        eventually(lambda: seen(root).calls, "one runs")
        yield store


def seen(root: Path) -> Group:
    with Reading(str(root)) as reading:
        found = groups_of(reading.observe())
    return next((each for each in found if each.group == "billing"), Group("billing", (), (), (), (), (), 0, 0, (), ""))


def owners(group: Group) -> dict[tuple[str, int], str | None]:
    return {
        (each.queue.topic, each.queue.queue_id): each.owner.client_id if each.owner else None for each in group.queues
    }


def test_the_group_is_as_the_scenario_made_it(store: MessageStore, root: Path) -> None:
    group = seen(root)
    assert (group.lag, group.waiting, list(group.members)) == (BEHIND, FAILED, NAMES)
    assert group.state == "running"
    assert set(owners(group).values()) == set(NAMES)


def test_group_ls_and_group_lag_show_it(store: MessageStore, root: Path) -> None:
    group = seen(root)
    (row,) = rows_of("group", "ls", root=root)
    shown = row["lag"], row["waiting"], row["members"], row["spare"], row["state"]
    assert shown == (group.lag, group.waiting, len(group.members), len(group.spare), group.state)
    lags = rows_of("group", "lag", "billing", root=root)
    assert sum(row["lag"] for row in lags) == group.lag
    assert {(row["topic"], row["queue_id"]): row["owner"] for row in lags} == owners(group)


def test_top_shows_it(store: MessageStore, root: Path) -> None:
    group = seen(root)
    (row,) = table_of("top", "--once", "--interval", "10ms", root=root)["groups"]
    shown = row["lag"], row["waiting"], row["members"], row["spare"], row["state"]
    assert shown == (group.lag, group.waiting, len(group.members), len(group.spare), group.state)


def test_check_shows_it(store: MessageStore, root: Path) -> None:
    group = seen(root)
    found = table_of("check", "--min-ready", "0", root=root)["findings"]
    (row,) = [each for each in found if each["check"] == "lag"]
    assert (row["lag"], row["waiting_retries"]) == (group.lag, group.waiting)
    assert row["state"].startswith(f"{group.state}, lag {group.lag}, {FAILED} wait for a retry")


def test_the_short_check_names_who_waits_for_retries_though_all_is_well(store: MessageStore, root: Path) -> None:
    (well,) = [
        line for line in run("check", "--min-ready", "0", "--store", str(root)).stdout.splitlines() if "ok" in line
    ]
    assert f"1 group ({FAILED} wait for a retry, all in billing)" in well


def test_the_metrics_show_it(store: MessageStore, root: Path) -> None:
    group = seen(root)
    with Source(root) as source:
        families = {each.metric.name: each.points for each in source.read()}
    assert sum(point.value for point in families["rocketmq_consumer_lag_messages"]) == group.lag
    assert [point.value for point in families["rocketmq_consumer_connections"]] == [len(group.members)]
    assert [point.value for point in families["rmq_waiting_retries"]] == [group.waiting]
    assert [point.value for point in families["rmq_spare_members"]] == [len(group.spare)]
    states_of_topic = {
        point.labels["state"]
        for point in families["rmq_group_state"]
        if point.value and point.labels["topic"] == "orders"
    }
    assert states_of_topic == {states.kind(group.state)}


def test_the_dashboard_shows_it(store: MessageStore, root: Path) -> None:
    pytest.importorskip("starlette", reason="the dashboard needs Starlette")
    pytest.importorskip("httpx2", reason="Starlette's test client needs httpx2")
    from tests.dashboard.visiting import text_of, visitor  # noqa: PLC0415 - it needs Starlette

    group = seen(root)
    with visitor(root) as browser:
        page = browser.get("/groups/billing").text
        strip = dict(re.findall(r"<dt>([^<]+)</dt><dd>(.*?)</dd>", page))
        shown = {name: text_of(value).strip() for name, value in strip.items()}
        assert (shown["Lag"], shown["Waiting for a retry"]) == (str(group.lag), str(group.waiting))
        assert shown["State"] == group.state
        assert f"{len(group.members)} members" in text_of(page)
        assert {owner for owner in NAMES if f"<code>{owner}</code>" in page} == set(owners(group).values())
        assert group.state in text_of(browser.get("/groups").text)
        call = group.calls[0]
        message = browser.get(f"/messages/orders/{call.queue.queue_id}/{call.queue_offset}").text
        assert f"in process {call.pid}" in text_of(message)


def test_a_server_shows_it(store: MessageStore, root: Path) -> None:
    group = seen(root)
    with asking(root) as client:
        stats = ConsumeStats.decode(client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="billing").body)
        assert sum(each.broker_offset - each.consumer_offset for each in stats.queues.values()) == group.lag
        answer = client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="billing")
        assert sorted(each.client_id for each in ConsumerConnection.decode(answer.body).connections) == NAMES


def test_a_member_whose_lease_has_ended_owns_nothing_in_any_view(root: Path) -> None:
    with open_store(root, housekeeping=False) as store, Producer(store) as producer:
        # Given a queue of a member
        queue = producer.send(Message("orders", b"1")).queue
        member = store.members().join("billing", "orders", "me", "tags *")
        slot = member.queue_slot(queue)
        member.take(slot, 60_000)
        assert owners(seen(root)) == {("orders", queue.queue_id): "me"}

        # When its lease ends, as that of a process that was stopped
        slot.store("lease_until", boottime() - 1)

        # Then it is a member still, and owns nothing
        assert owners(seen(root)) == {("orders", queue.queue_id): None}
        assert [(row["members"], row["state"]) for row in rows_of("group", "ls", root=root)] == [(1, "no owner")]
        assert [row["owner"] for row in rows_of("group", "lag", "billing", root=root)] == [None]
        with Reading(str(root)) as reading:
            (found,) = [each for each in findings.look(reading) if each.check == "lag"]
        assert found.state.startswith("no owner")
        member.leave()


def test_a_commit_that_a_death_cut_off_is_no_lag(store: MessageStore, root: Path) -> None:
    # Given a message below which all are finished, and an owner that died before it had said so
    behind = next(
        slot for slot in store.groups if store.topics.max_offset(store.topics.queue(slot.queue_slot)) >= BEHIND
    )
    lag = seen(root).lag
    behind.store("advance_to", behind.committed_offset + 2)

    # Then two messages less are behind, in each view
    assert seen(root).lag == lag - 2
    (row,) = rows_of("group", "ls", root=root)
    assert row["lag"] == lag - 2
    with asking(root) as client:
        stats = ConsumeStats.decode(client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="billing").body)
    assert sum(each.broker_offset - each.consumer_offset for each in stats.queues.values()) == lag - 2


def test_a_handler_that_hangs_is_the_state_of_its_group(store: MessageStore, root: Path) -> None:
    call = seen(root).calls[0]
    place = states.place(call.queue.topic, call.queue.queue_id, call.queue_offset)
    with Reading(str(root)) as reading:
        (group,) = groups_of(reading.observe(), hung_after_s=0.0)
        (found,) = [each for each in findings.look(reading, Limits(message_age_s=0.0)) if each.check == "lag"]
    assert re.fullmatch(rf"hung \d+ s in {place}", group.state)
    assert found.level == CRITICAL
    assert found.state.startswith("hung")


def test_worker_ls_and_the_page_of_workers_read_what_runs_by_themselves(store: MessageStore, root: Path) -> None:
    with Reading(str(root)) as reading:
        assert [each[:4] for each in reading.calls()] == [each[:4] for each in seen(root).calls]


def test_a_message_whose_handler_runs_is_not_said_to_wait(store: MessageStore, root: Path) -> None:
    call = seen(root).calls[0]
    message = store.messages.at(call.queue, call.queue_offset)
    standing = [
        row for row in rows_of("msg", "trace", message.message_id, root=root) if row["event"] == "group billing"
    ]
    assert [re.sub(r"for .* in", "in", row["detail"]) for row in standing] == [f"runs in process {call.pid}"]


def test_a_message_whose_tag_a_group_does_not_want_is_not_said_to_be_finished(root: Path) -> None:
    app = App(root)

    @app.handler("orders", group="billing", tags="paid || refunded")
    def bill(message: ReceivedMessage) -> None:
        """Take it."""

    with open_store(root) as store, Producer(store) as producer:
        producer.create_topic("orders", 1)
        sent = {tag: producer.send(Message("orders", b"1", tags=tag)).message_id for tag in ("paid", "open")}
        with closing(PushConsumer(store, app.handlers)) as consumer:
            consumer.start()
            eventually(lambda: seen(root).queues and not seen(root).lag, "all are passed")
            told = {tag: standing_of(message_id, root) for tag, message_id in sent.items()}
    assert told == {"paid": ["finished"], "open": ["skipped by its tags: the group wants paid || refunded"]}


def test_members_without_a_queue_are_said_to_be_spare(root: Path) -> None:
    app = App(root)

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        """Take it."""

    with ExitStack() as opened:
        store = opened.enter_context(open_store(root))
        opened.enter_context(Producer(store)).create_topic("orders", 2)
        for name in ("first", "second", "third"):
            opened.enter_context(closing(PushConsumer(store, app.handlers, client_id=name))).start()
        eventually(lambda: seen(root).spare == ("third",), "one has none")
        assert [(row["members"], row["spare"]) for row in rows_of("group", "ls", root=root)] == [(3, 1)]
        with Reading(str(root)) as reading:
            (found,) = [each for each in findings.look(reading) if each.check == "lag"]
        assert "1 of 3 members are spare" in found.state


def table_of(*words: str, root: Path) -> dict[str, Any]:
    found = data(run(*words, "-o", "json", "--store", str(root)))
    assert isinstance(found, dict)
    return found


def standing_of(message_id: str, root: Path) -> list[str]:
    """Return how the group stands with a message, as ``rmq msg trace`` says it."""
    rows = rows_of("msg", "trace", message_id, root=root)
    return [row["detail"] for row in rows if row["event"] == "group billing"]


def rows_of(*words: str, root: Path) -> list[dict[str, Any]]:
    found = data(run(*words, "-o", "json", "--store", str(root)))
    assert isinstance(found, list)
    return found
