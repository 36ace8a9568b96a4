"""Replies: from a remote or a local handler, to a remote or a local requester."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.errors import RequestTimeout
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response
from rmqclient.store import open_store
from rmqclient.testing import Server, serve
from tests.broker.producers.connected import producer, stored
from tests.broker.sending.sends import ONES, send_of
from tests.client.conftest import consuming
from tests.support.cluster.caller import Caller, connected

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
REQUESTER = "192.0.2.2@requester"
LONGEST_S = 20.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serve(tmp_path / "store") as found:
        yield found


def asking(client_id: str = REQUESTER) -> Frame:
    envelope = {"CORRELATION_ID": "d30c0323", "REPLY_TO_CLIENT": client_id, "TTL": "15000"}
    return send_of(b"what?", {**ONES, **envelope})


def reply_of(body: bytes, client_id: str | None = REQUESTER) -> Frame:
    properties = {"MSG_TYPE": "reply", "CORRELATION_ID": "d30c0323", "TTL": "15000", "UNIQ_KEY": "A" * 32}
    if client_id is not None:
        properties["REPLY_TO_CLIENT"] = client_id
    return send_of(
        body, properties, code=RequestCode.SEND_REPLY_MESSAGE_V2, topic=REPLY_TOPIC, queueId=0, bornTimestamp=7
    )


def take(caller: Caller, code: int = 0) -> Frame:
    """Return the reply that a requester gets, and answer that it took it."""
    pushed = caller.receive()
    assert pushed.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert not pushed.is_oneway
    caller.send(response(pushed, code))
    return pushed


def properties(pushed: Frame) -> dict[str, str]:
    pairs = request_fields(pushed)["properties"].split("\x02")
    return {name: value for name, _, value in (pair.partition("\x01") for pair in pairs) if name}


@contextmanager
def handling(place: Path) -> Iterator[None]:
    """Answer requests of the topic ``orders`` with their body, in capitals, by a consumer of this library."""
    app = App(place)

    @app.handler("orders", group="answerers", replies=True, start="earliest")
    def answer(message: ReceivedMessage) -> bytes:
        return message.body.upper()

    with consuming(place, app):
        yield


def test_a_reply_goes_to_the_connection_of_its_requester(server: Server) -> None:
    with producer(server, REQUESTER) as requester, connected(server.address) as replier:
        replier.send(reply_of(b"this"))
        pushed = take(requester)
        answer = replier.receive()
        assert pushed.body == b"this"
        fields = request_fields(pushed)
        assert (fields["topic"], fields["queueId"], fields["bornTimestamp"]) == (REPLY_TOPIC, 0, 7)
        assert fields["storeHost"] == server.address
        assert fields["bornHost"].startswith("127.0.0.1:")
        assert fields["storeTimestamp"] > 1_700_000_000_000
        found = properties(pushed)
        assert (found["CORRELATION_ID"], found["REPLY_TO_CLIENT"]) == ("d30c0323", REQUESTER)
        assert found["PUSH_REPLY_TIME"].isdecimal()
        assert answer.code == 0
        assert answer.fields.keys() == {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"}


def test_a_reply_that_nobody_takes_is_stored_and_answered_with_a_failure(server: Server) -> None:
    with producer(server, REQUESTER) as requester, connected(server.address) as replier:
        replier.send(reply_of(b"this"))
        take(requester, code=1)
        failed = replier.receive()
        gone = replier.ask(reply_of(b"this", "nobody@9"))
        nameless = replier.ask(reply_of(b"this", None))
    for answer, remark in (
        (failed, f"push reply message to {REQUESTER}fail."),
        (gone, "push reply message fail, channel of <nobody@9> not found."),
        (nameless, "reply message properties[REPLY_TO_CLIENT] is null"),
    ):
        assert (answer.code, answer.remark) == (1, remark)
        assert len(answer.fields["msgId"]) == 32


def test_a_requester_that_hangs_up_before_it_takes_the_reply_is_a_failure(server: Server) -> None:
    with connected(server.address) as replier:
        with producer(server, REQUESTER) as requester:
            replier.send(reply_of(b"this"))
            assert requester.receive().code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        assert replier.receive().code == 1


def test_a_local_handler_answers_a_remote_requester(server: Server) -> None:
    with producer(server, REQUESTER) as requester, handling(server.root):
        for _ in range(2):
            requester.send(asking())
            frames = [requester.receive() for _ in range(2)]  # a quick reply overtakes the answer to the send
            (pushed,) = [frame for frame in frames if frame.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT]
            (answer,) = [frame for frame in frames if frame is not pushed]
            requester.send(response(pushed, 0))
            assert (answer.code, pushed.body) == (0, b"WHAT?")
            found = properties(pushed)
            assert (found["CORRELATION_ID"], found["MSG_TYPE"]) == ("d30c0323", "reply")


def test_a_requester_that_has_sent_no_heartbeat_gets_its_replies_by_the_connection_that_asked(server: Server) -> None:
    with connected(server.address) as requester, connected(server.address) as replier, handling(server.root):
        for again in range(2):  # the first makes the topic, in another thread
            requester.send(asking())
            frames = [requester.receive() for _ in range(2)]
            (pushed,) = [frame for frame in frames if frame.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT]
            assert pushed.body == b"WHAT?", again
        replier.send(reply_of(b"this"))
        assert take(requester).body == b"this"
        assert replier.receive().code == 0
        with producer(server, REQUESTER) as newer:  # and a heartbeat says it better
            replier.send(reply_of(b"that"))
            assert take(newer).body == b"that"
            assert replier.receive().code == 0


def test_a_requester_without_a_heartbeat_that_has_gone_takes_no_reply(server: Server) -> None:
    with connected(server.address) as replier:
        with connected(server.address) as requester:
            stored(requester, asking())
        assert replier.ask(reply_of(b"this")).code == 1  # at the latest when the server has noticed the end
        assert replier.ask(reply_of(b"this")).remark == f"push reply message fail, channel of <{REQUESTER}> not found."


def test_each_of_many_remote_requesters_gets_its_own_reply_from_a_local_handler(server: Server) -> None:
    with handling(server.root), producer(server, "a@1") as one, producer(server, "b@2") as two:
        for caller, name in ((one, "a@1"), (two, "b@2"), (one, "a@1")):
            caller.send(asking(name))
        for caller, name, count in ((one, "a@1", 2), (two, "b@2", 1)):
            frames = [caller.receive() for _ in range(2 * count)]
            pushed = [frame for frame in frames if frame.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT]
            assert [properties(frame)["REPLY_TO_CLIENT"] for frame in pushed] == [name] * count


@pytest.mark.guarantee("G49")
def test_a_requester_with_an_id_that_no_client_can_have_is_not_remembered(server: Server) -> None:
    with connected(server.address) as requester, connected(server.address) as replier:
        for client_id, is_remembered in (("r" * 255, True), ("r" * 256, False)):
            stored(requester, asking(client_id))
            replier.send(reply_of(b"this", client_id))
            if is_remembered:
                assert take(requester).body == b"this"
            assert (replier.receive().code == 0) == is_remembered
        stored(requester, send_of())  # and the next frame is the answer, so nothing was pushed before it


def test_a_remote_handler_answers_a_local_requester(server: Server) -> None:
    with Producer(server.root) as requester, connected(server.address) as replier:
        reply = requester.request_async(Message("orders", b"what?"), timeout=LONGEST_S)
        (asked,) = stored_in(server.root, "orders")
        assert asked.properties["CLUSTER"] == "DefaultCluster"
        frame = reply_of(b"this", asked.properties["REPLY_TO_CLIENT"])
        frame.fields["i"] = frame.fields["i"].replace("d30c0323", asked.properties["CORRELATION_ID"])
        assert replier.ask(frame).code == 0
        assert reply.result(LONGEST_S).body == b"this"


def stored_in(root: Path, topic: str) -> list[ReceivedMessage]:
    with open_store(root) as store:
        queues = store.topics.queues(topic)
        return [store.messages.at(queue, at) for queue in queues for at in range(store.topics.max_offset(queue))]


def test_our_own_client_asks_over_the_network_and_a_local_handler_answers(server: Server) -> None:
    with handling(server.root), Producer(server.url) as requester:
        assert requester.request(Message("orders", b"what?"), timeout=LONGEST_S).body == b"WHAT?"


def test_a_request_that_nobody_answers_ends_after_its_time(server: Server) -> None:
    with Producer(server.url) as requester, pytest.raises(RequestTimeout):
        requester.request(Message("orders", b"what?"), timeout=0.3)


def test_a_server_ends_while_replies_are_awaited(server: Server) -> None:
    with producer(server, REQUESTER) as requester:
        stored(requester, asking())
        server.stop()
    assert not server.is_running
