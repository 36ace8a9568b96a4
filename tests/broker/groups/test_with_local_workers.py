"""One group of local workers and remote members: they count each other, and no queue is ever with two of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from rmqclient import App, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.allocation import averaged
from rmqclient.allocation.strategy import in_order_of_members, in_order_of_queues
from rmqclient.broker.groups.seats import LEASE_MS
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import SubscriptionMismatch
from rmqclient.remoting.bodies import Subscription
from rmqclient.remoting.codes import ResponseCode
from rmqclient.store import MessageQueue, open_store
from rmqclient.store.files.file_lock import MEMBER_BYTES
from rmqclient.store.runtime.subscription import REMOTE
from tests.broker.groups.house import GROUP, TOPIC, Client, House

ALL = {0, 1, 2, 3}

Start = Callable[..., PushConsumer]


@pytest.fixture
def worker(house: House) -> Iterator[Start]:
    """What starts local workers; they are closed at the end."""
    with ExitStack() as opened:

        def start(
            client_id: str, handle: Callable[[ReceivedMessage], None] | None = None, **options: Any
        ) -> PushConsumer:
            app = App(house.root)
            app.handler(TOPIC, group=GROUP, **options)(handle or _ignore)
            consumer = PushConsumer(house.root, app.handlers, client_id=client_id)
            opened.callback(consumer.close)
            consumer.start()
            return consumer

        yield start


def held(consumer: PushConsumer) -> set[int]:
    """Return the queues of a local worker."""
    return {queue.queue_id for queues in consumer.queues.values() for queue in queues}


def fed(client: Client) -> set[int]:
    """Return the queues of which a remote member is fed."""
    return {queue_id for queue_id in ALL if client.may_pull(queue_id)}


@pytest.mark.guarantee("G47")
def test_a_local_worker_and_a_remote_member_share_the_queues(house: House, worker: Start) -> None:
    remote = house.member("a-remote")
    assert fed(remote) == ALL
    local = worker("b-local")
    house.until(lambda: remote.members() == ("a-remote", "b-local"), "both are listed, by a list of 50 ms ago at most")
    house.until(lambda: remote.notices >= 2, "the remote member is told that somebody came")
    for queue_id in (2, 3):
        remote.commit(queue_id, 0)
    house.until(lambda: held(local) == {2, 3}, "the worker has its share")
    assert fed(remote) == {0, 1}
    local.close()
    house.until(lambda: remote.members() == ("a-remote",), "the worker is gone")
    house.until(lambda: fed(remote) == ALL, "the remote member has everything again")


def test_a_local_worker_gives_queues_to_a_remote_member_and_takes_them_back(house: House, worker: Start) -> None:
    local = worker("a-local")
    house.until(lambda: held(local) == ALL, "the worker has every queue")
    remote = house.member("b-remote")
    house.until(lambda: fed(remote) == {2, 3}, "the remote member has its share")
    house.until(lambda: held(local) == {0, 1}, "the worker has given it up")
    remote.close()
    house.until(lambda: held(local) == ALL, "the worker has every queue again")


@pytest.mark.guarantee("G47")
def test_a_remote_members_queue_is_not_taken_while_it_has_messages_of_it(house: House, worker: Start) -> None:
    remote = house.member("a-remote")
    assert remote.lock(*ALL) == ALL
    assert fed(remote) == ALL
    local = worker("b-local", order="queue")
    house.until(lambda: remote.notices > 1, "the remote member is told")
    assert (held(local), fed(remote) - {2, 3}) == (set(), {0, 1})
    remote.members()
    remote.unlock(2)
    house.until(lambda: held(local) == {2}, "only the queue that was unlocked moves")
    remote.unlock(3)
    house.until(lambda: held(local) == {2, 3}, "so does the other one")


def test_a_worker_runs_no_message_of_a_queue_while_an_ordered_handler_of_it_ends(house: House, worker: Start) -> None:
    house.fill(4)
    begun, go_on = threading.Semaphore(0), threading.Event()

    def handle(message: ReceivedMessage) -> None:
        begun.release()
        assert go_on.wait(20)

    local = worker("a-local", handle, order="queue", threads=4)
    for _ in ALL:
        assert begun.acquire(timeout=20)
    remote = house.member("b-remote")
    assert remote.lock(2, 3) == set()
    go_on.set()
    house.until(lambda: remote.lock(2, 3) == {2, 3}, "the locks are free when the handlers have ended")
    house.until(lambda: held(local) == {0, 1}, "the worker has the rest")
    assert remote.offset(2) == 1


def test_both_sides_compute_the_same_allocation(house: House, worker: Start) -> None:
    house.store.topics.add([MessageQueue(TOPIC, queue_id) for queue_id in range(4, 17)])
    config = house.broker.topics.config(TOPIC)
    assert config is not None
    house.broker.topics.create(TOPIC, replace(config, read_queue_count=17, write_queue_count=17))
    remotes = [house.member(client_id) for client_id in ("10.0.0.9@3#1", "10.0.0.10@3#1", "Z@1")]
    locals_ = [worker("host@7#ab"), worker("10.0.0.9@4#2")]
    ids = remotes[0].members()
    assert len(ids) == 5
    expected = averaged(in_order_of_members(ids), in_order_of_queues(tuple(house.store.topics.queues(TOPIC))))
    wanted = {client: {queue.queue_id for queue in queues} for client, queues in expected.items()}

    def settled() -> bool:
        shares = {remote.client_id: fed_of(remote, wanted[remote.client_id]) for remote in remotes}
        return shares | {local.client_id: held(local) for local in locals_} == wanted

    house.until(settled, "every member has its share")


def fed_of(client: Client, queue_ids: set[int]) -> set[int]:
    """Return those of some queues of which a remote member is fed; it asks for no other."""
    return {queue_id for queue_id in queue_ids if client.may_pull(queue_id)}


def test_a_remote_member_that_wants_other_messages_gets_none_and_is_not_counted(
    house: House, worker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    local = worker("b-local", tags="a || b")
    with caplog.at_level(logging.ERROR):
        remote = house.member("a-remote", Subscription(TOPIC, "a"))
        house.look()
    assert len([line for line in caplog.messages if "local members want others" in line]) == 1
    assert (fed(remote), remote.members()) == (set(), ("b-local",))
    house.until(lambda: held(local) == ALL, "the worker keeps everything")
    local.close()
    house.until(lambda: fed(remote) == ALL, "the remote member is in the group when the worker is gone")
    assert remote.members() == ("a-remote",)


def test_a_remote_member_with_the_same_tags_in_another_order_is_a_member(house: House, worker: Start) -> None:
    worker("b-local", tags="b || a", allocation="circle")
    remote = house.member("a-remote", Subscription(TOPIC, "a||b"))
    house.until(lambda: remote.members() == ("a-remote", "b-local"), "both are listed, by a list of 50 ms ago at most")


def test_a_local_worker_that_wants_other_messages_than_a_remote_member_is_refused(house: House, worker: Start) -> None:
    house.member("a-remote", Subscription(TOPIC, "a"))
    with pytest.raises(SubscriptionMismatch):
        worker("b-local", tags="b")


@pytest.mark.guarantee("G48")
def test_a_remote_member_commits_nothing_of_a_queue_that_a_worker_has(house: House, worker: Start) -> None:
    house.fill(8)
    local = worker("a-local")
    house.until(lambda: [house.committed(queue_id) for queue_id in ALL] == [2] * 4, "the worker has handled everything")
    remote = house.client("mqadmin")
    assert remote.commit(0, 1) == ResponseCode.SYSTEM_ERROR
    assert house.committed(0) == 2
    local.close()
    assert remote.commit(0, 1) == 0
    assert house.committed(0) == 1


def test_the_command_line_names_the_remote_owner_of_each_queue(house: House) -> None:
    remote = house.member("java@7")
    fed(remote)
    with Admin(house.root) as admin:
        found = {(each.topic, each.client_id, each.queue_ids) for each in admin.assignment(GROUP)}
    assert (TOPIC, "java@7", (0, 1, 2, 3)) in found


def test_a_topic_that_gets_more_queues_is_told_of(house: House) -> None:
    remote = house.member("one")
    heard = remote.notices
    house.store.topics.add([MessageQueue(TOPIC, 4)])
    config = house.broker.topics.config(TOPIC)
    assert config is not None
    house.broker.topics.create(TOPIC, replace(config, read_queue_count=6, write_queue_count=6))
    house.until(lambda: remote.notices > heard, "the member is told")


def test_a_local_worker_that_dies_behind_the_seat_of_a_remote_member_is_noticed(house: House) -> None:
    remote = house.member("a-remote")
    with open_store(house.root) as other:
        dead = other.members().join(GROUP, TOPIC, "b-local", f"tags *{REMOTE}")
        house.until(lambda: remote.members() == ("a-remote", "b-local"), "the worker is a member")
        begun = time.monotonic()
        other.lock.unlock(MEMBER_BYTES + dead.slot)  # what the kernel does at a death
        house.until(lambda: remote.members() == ("a-remote",), "the dead one is no member")
    assert time.monotonic() - begun < 0.9 * LEASE_MS / 1000
    house.until(lambda: fed(remote) == ALL, "the remote member has every queue")


def _ignore(message: ReceivedMessage) -> None:
    del message
