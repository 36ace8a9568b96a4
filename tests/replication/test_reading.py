"""Reads at a replica that follows: by this library, by its commands, and by clients of a server over the replica."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqclient import PullConsumer
from rmqclient.broker.address import Address
from rmqclient.broker.server import _replicas_of
from rmqclient.broker.settings import ServeSettings
from rmqclient.errors import ReadOnlyReplica
from rmqclient.remoting.bodies import ConsumerData, Heartbeat, Subscription, TopicRoute
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.replication.primary import Primary
from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.settings import config_file
from rmqclient.store.wire import decode_records
from rmqclient.workers.cli import rmq
from tests.broker.asking import asking
from tests.broker.sending.sends import send_of
from tests.replication.pairs import fill, following, open_replica, until
from tests.support.stores import QUEUE, SMALL, TOPIC, appender_of, body_of


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with messages."""
    with open_store(tmp_path / "primary", SMALL, housekeeping=False) as opened:
        appender_of(opened).append(Message(TOPIC, body_of(0), keys=("first",)))
        fill(opened, 39, first=1)
        yield opened


@pytest.fixture
def replica(primary: MessageStore, tmp_path: Path) -> Iterator[Path]:
    """The directory of a replica that has everything, and goes on following."""
    with Primary(primary, "127.0.0.1", 0) as sending:
        address = sending.start()
        with open_replica(tmp_path / "replica") as store, following(store, address):
            until(lambda: store.state.published_to == primary.state.published_to, "the replica has everything")
            store.topics.adopt(config_file.read_topics(primary.root))
            yield store.root


def told(*arguments: str) -> list[dict[str, object]]:
    """Run a command; return what it printed as JSON, line by line or at once."""
    result = CliRunner().invoke(rmq, arguments, prog_name="rmq")
    assert result.exit_code == 0, result.stderr
    try:
        found = json.loads(result.stdout)
    except json.JSONDecodeError:
        found = [json.loads(line) for line in result.stdout.splitlines()]
    return found if isinstance(found, list) else [found]


@pytest.mark.guarantee("G84")
def test_consumers_and_commands_read_a_replica_while_it_follows(primary: MessageStore, replica: Path) -> None:
    with PullConsumer(replica, group="reports") as reader:
        assert [each.body for each in reader.pull(QUEUE, 0, limit=3).messages] == [
            body_of(0),
            *(body_of(number, 400) for number in (1, 2)),
        ]
        fill(primary, 1, first=40)
        assert reader.pull(QUEUE, 40, wait=60).messages[0].body == body_of(40, 400)
        with pytest.raises(ReadOnlyReplica):
            reader.commit(QUEUE, 3)
    store = ("--store", str(replica), "-o", "json")
    assert len(told("tail", TOPIC, "--from", "earliest", "--no-follow", *store)) == 41
    found = told("message", "find", TOPIC, "first", *store)
    assert told("message", "get", str(found[0]["message_id"]), *store)[0]["queue_offset"] == 0


@pytest.mark.guarantee("G85")
def test_a_server_over_a_replica_answers_pulls_and_refuses_the_rest(primary: MessageStore, replica: Path) -> None:
    with asking(replica, SMALL, read_only=True) as client:
        # Given a member of a group that the primary does not know
        heartbeat = Heartbeat("me", (), (ConsumerData("reports", subscriptions=(Subscription(TOPIC),)),))
        member = client.beat(heartbeat, Address("10.0.0.8", 4_000))

        # When it pulls: at once, and before the message is there
        def pull(offset: int, suspend_ms: int = 0) -> tuple[int, list[int], int]:
            answer = client.ask(
                RequestCode.PULL_MESSAGE,
                peer=member,
                consumerGroup="reports",
                topic=TOPIC,
                queueId=0,
                queueOffset=offset,
                maxMsgNums=2,
                sysFlag=3,
                commitOffset=7,
                suspendTimeoutMillis=suspend_ms,
                subVersion=0,
            )
            found = [message.queue_offset for message in decode_records(answer.body)]
            return answer.code, found, int(answer.fields["nextBeginOffset"])

        # Then it gets what there is, and is never moved back by a replica that is behind
        assert pull(38) == (0, [38, 39], 40)
        assert pull(45, 100) == (ResponseCode.PULL_NOT_FOUND, [], 45)
        assert client.broker.store.groups.find("reports", 0) is None  # and nothing was committed

        # And the route has the replica alone, as the slave that it is
        route = TopicRoute.decode(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=TOPIC).body)
        assert [broker.addresses for broker in route.brokers] == [{1: "127.0.0.1:9876"}]
        assert client.ask_frame(send_of()).code != 0
    with open_store(replica, SMALL, housekeeping=False) as store:
        with pytest.raises(ReadOnlyReplica):
            _replicas_of(store, ServeSettings(replica))
        _replicas_of(store, ServeSettings(replica, read_only=True))


@pytest.mark.guarantee("G85")
def test_clients_that_are_far_behind_are_sent_to_the_replica(primary: MessageStore) -> None:
    def suggested(offset: int, percent: int, replica: Address | None) -> tuple[str, list[dict[int, str]]]:
        with asking(primary.root, SMALL, replica=replica, memory_percent=percent) as client:
            answer = client.ask(
                RequestCode.PULL_MESSAGE,
                consumerGroup="reports",
                topic=TOPIC,
                queueId=0,
                queueOffset=offset,
                maxMsgNums=1,
                sysFlag=4,
                commitOffset=0,
                suspendTimeoutMillis=0,
                subscription="*",
                subVersion=0,
            )
            route = TopicRoute.decode(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=TOPIC).body)
            return answer.fields["suggestWhichBrokerId"], [broker.addresses for broker in route.brokers]

    here, there = "127.0.0.1:9876", Address("10.0.0.2", 10_911)
    assert suggested(0, 0, None) == ("0", [{0: here}])
    assert suggested(0, 40, there) == ("0", [{0: here, 1: str(there)}])
    assert suggested(0, 0, there) == ("1", [{0: here, 1: str(there)}])
    assert suggested(40, 0, there) == ("0", [{0: here, 1: str(there)}])  # at the end of the queue it comes back
