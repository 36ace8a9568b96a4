"""Routes: for every request that a server answers, which keys it lets through, and which it refuses.

The page of options says what a key needs for each request. Every request is asked of a server process by every kind of
key, and the answers must be those of the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from rmqclient.broker.address import Address
from rmqclient.broker.broker import Broker
from rmqclient.broker.routes import Permission, Room
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import NoPermission, error_of
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import REQUESTS, request
from rmqclient.store.wire import parse_offset_id
from tests.broker.access.signing import account, signed
from tests.broker.asking import asking
from tests.broker.life.serving import serving
from tests.broker.net.loopback import Caller, caller
from tests.broker.sending.sends import send_of
from tests.broker.test_requests_page import numbers

PAGE: Final = Path(__file__).parents[3] / "docs" / "serve" / "safety.md"
DENY, PUB, SUB = Permission.DENY, Permission.PUB, Permission.SUB
TOPIC, GROUP, GROUP_WITHOUT_MEMBERS = "orders", "billing", "billing-audit"
OPERATOR, MEMBER = "operator", "member of all groups"

ANY_TOPIC: Final = (DENY, PUB, SUB, PUB | SUB)
ANY_GROUP: Final = (DENY, SUB)
ROWS: Final = {
    "nothing more": (ANY_TOPIC, ANY_GROUP),
    "PUB on the topic": ((PUB, PUB | SUB), ANY_GROUP),
    "SUB on the topic": ((SUB, PUB | SUB), ANY_GROUP),
    "PUB or SUB on the topic": ((PUB, SUB, PUB | SUB), ANY_GROUP),
    "SUB on the group": (ANY_TOPIC, (SUB,)),
    "SUB on the topic and on the group": ((SUB, PUB | SUB), (SUB,)),
    "PUB and SUB on the topic, SUB on the group": ((PUB | SUB,), (SUB,)),
    "`admin`": ((), ()),
}
"""The rows of the page: the rights on the topic of a request, and on its group, that let it through."""

RIGHTS: Final = [(topic, group) for topic in ANY_TOPIC for group in ANY_GROUP]
VALUES: Final[dict[str, Any]] = {
    **dict.fromkeys(("topic", "originTopic", "statsKey"), TOPIC),
    **dict.fromkeys(("consumerGroup", "group", "compareGroup"), GROUP),
    "producerGroup": "makers",
    "defaultTopic": "TBW102",
    "maxMsgNums": 1,
    "maxNum": 1,
    "endTimestamp": 2**60,
    "statsName": "TOPIC_PUT_NUMS",
    "subscription": "*",
}
OF_TYPES: Final[dict[str, Any]] = {"s": "x", "i": 0, "l": 0, "b": False}
HEARTBEAT: Final = {
    "clientID": "c",
    "consumerDataSet": [{"groupName": GROUP, "subscriptionDataSet": [{"topic": TOPIC, "subString": "*"}]}],
}
LOCKS: Final = {
    "consumerGroup": GROUP,
    "clientId": "c",
    "mqSet": [{"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}],
}
OF_CODES: Final[dict[int, dict[str, Any]]] = {
    RequestCode.PULL_MESSAGE: {"sysFlag": 4},  # with its subscription
    RequestCode.END_TRANSACTION: {"commitOrRollback": 8},
}
BODIES: Final[dict[int, Any]] = {
    RequestCode.HEART_BEAT: HEARTBEAT,
    RequestCode.LOCK_BATCH_MQ: LOCKS,
    RequestCode.UNLOCK_BATCH_MQ: LOCKS,
}


def rows() -> dict[int, str]:
    """Return the row of each request on the page."""
    found = re.findall(r"^\| ([^|]+) \| ([0-9, to]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {code: row for row, codes in found for code in numbers(codes)}


PINNED: Final = rows()


def key_of(topic: Permission, group: Permission) -> str:
    """Return the access key that has these rights on the topic and the group, and no other."""
    return f"topic{int(topic)}group{int(group)}"


class Client:
    """A connection to a server whose keys have every kind of rights."""

    def __init__(self, connection: Caller) -> None:
        self._connection = connection

    def ask(self, frame: Frame, access_key: str | None = None) -> Frame:
        """Return the answer to a request, and not what the server asks or tells meanwhile."""
        self._connection.send(frame if access_key is None else signed(frame, access_key))
        while answer := self._connection.receive():
            if answer.is_response:
                return answer
        raise AssertionError("the connection has ended")

    def is_refused(self, frame: Frame, access_key: str | None = None) -> bool:
        """Whether the server refuses a request for want of a permission."""
        answer = self.ask(frame, access_key)
        return isinstance(error_of(answer), NoPermission) and "AclException" in (answer.remark or "")


class Served:
    """A server process that has a message and a half message."""

    def __init__(self, address: Address) -> None:
        self._address = address
        with self.client() as client:
            self._message = _offset(client.ask(send_of(queueId=0), OPERATOR))
            half = send_of(b"half", {"TRAN_MSG": "true", "PGROUP": "makers"}, queueId=0, sysFlag=4)
            self._half = _offset(client.ask(half, OPERATOR))

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Connect for the length of a block."""
        with caller(self._address) as connection:
            yield Client(connection)

    def frame(self, code: int) -> Frame:
        """Return a request that can be carried out, about the one topic and the one group.

        What administrators change is another topic.
        """
        values = {each.name: VALUES.get(each.name, OF_TYPES[each.type.letter]) for each in REQUESTS[code].own.fields}
        values |= {"offset": self._message} if "offset" in values else {}
        values |= OF_CODES.get(code, {})
        if PINNED[code] == "`admin`" and "topic" in values:
            values["topic"] = "spare"
        if code == RequestCode.END_TRANSACTION:
            values["commitLogOffset"] = self._half
        return request(RequestCode(code), json.dumps(BODIES.get(code, {})).encode(), **values)


def _offset(answer: Frame) -> int:
    assert answer.code == 0, answer.remark
    return parse_offset_id(answer.fields["msgId"]).commit_log_offset


def _rule(name: str, rights: Permission) -> list[str]:
    return [f"{name}={'|'.join(each.name or '' for each in rights) or 'DENY'}"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("access")
    keys = [account(OPERATOR, admin=True), account(MEMBER, defaultTopicPerm="PUB|SUB", defaultGroupPerm="SUB")]
    for topic, group in RIGHTS:
        groups = [*_rule(GROUP, group), *_rule(GROUP_WITHOUT_MEMBERS, group)]
        keys.append(account(key_of(topic, group), topicPerms=_rule(TOPIC, topic), groupPerms=groups))
    acl = path / "acl.json"
    acl.write_text(json.dumps({"accounts": keys}), encoding="utf-8")
    acl.chmod(0o600)
    with serving(path, str(path / "store"), "--acl", str(acl)) as server:
        yield Served(server.address)


@pytest.mark.guarantee("G107")
def test_the_page_says_of_each_request_that_is_answered_what_a_key_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared: list[int] = []
    take_in = Broker._take_in

    def noting(broker: Broker, *rooms: Room) -> None:
        declared.extend(route.code for room in rooms for route in room.routes())
        take_in(broker, *rooms)

    monkeypatch.setattr(Broker, "_take_in", noting)
    with asking(tmp_path / "store") as broker:
        answered = broker.broker.routes()
    assert len(declared) == len(answered), "a request with two routes"
    assert set(PINNED) == set(answered)


@pytest.mark.guarantee("G107")
@pytest.mark.parametrize("code", sorted(PINNED))
def test_a_server_lets_those_keys_through_that_the_page_says(served: Served, code: int) -> None:
    topics, groups = ROWS[PINNED[code]]
    with served.client() as client:
        assert client.is_refused(served.frame(code))
        for topic, group in RIGHTS:
            is_allowed = topic in topics and group in groups
            assert client.is_refused(served.frame(code), key_of(topic, group)) is not is_allowed, (topic, group)
        assert client.is_refused(served.frame(code), MEMBER) is (PINNED[code] == "`admin`")
        assert not client.is_refused(served.frame(code), OPERATOR)


@pytest.mark.guarantee("G107")
def test_a_server_answers_no_other_request(served: Served) -> None:
    others = sorted({*range(400), *map(int, RequestCode)} - set(PINNED))
    with served.client() as client:
        assert [code for code in others if not client.is_refused(Frame(code), MEMBER)] == []
        answers = {client.ask(Frame(code), OPERATOR).code for code in others}
    assert answers == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}


def test_the_rates_of_a_group_need_the_group(served: Served) -> None:
    asked: dict[str, Any] = {"statsName": "GROUP_GET_NUMS", "statsKey": f"{TOPIC}@{GROUP}"}
    with served.client() as client:
        for topic, group in RIGHTS:
            frame = request(RequestCode.VIEW_BROKER_STATS_DATA, **asked)
            assert client.is_refused(frame, key_of(topic, group)) is (group == DENY)


def test_the_offsets_of_all_groups_are_those_of_the_groups_that_the_key_reads_for(served: Served) -> None:
    ours, theirs = GROUP_WITHOUT_MEMBERS, "theirs"
    with served.client() as client:
        for group in (ours, theirs):
            queue: dict[str, Any] = {"topic": TOPIC, "queueId": 0, "commitOffset": 1}
            commit = request(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=group, **queue)
            assert client.ask(commit, OPERATOR).code == 0

        def groups(access_key: str) -> set[str]:
            answer = client.ask(request(RequestCode.GET_ALL_CONSUMER_OFFSET), access_key)
            return {ours, theirs}.intersection(re.findall(rf'"{TOPIC}@([\w-]+)"', answer.body.decode()))

        assert groups(key_of(DENY, DENY)) == set()
        assert groups(key_of(DENY, SUB)) == {ours}
        assert groups(MEMBER) == groups(OPERATOR) == {ours, theirs}
