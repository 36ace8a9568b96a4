"""A client: calls and their errors, requests of brokers, signatures, closing."""

from __future__ import annotations

import base64
import hmac
import threading
import time

import pytest

from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.errors import AnswerError, BrokerUnreachable, NoPermission, QueryNotFound, QueueError, StoreClosed
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, response, response_fields
from tests.cluster.client.conftest import client_of
from tests.support.cluster.scripted_cluster import scripted_cluster

OFFSET = RequestCode.GET_MAX_OFFSET
CHANGED = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
INFO = RequestCode.GET_CONSUMER_RUNNING_INFO


def question() -> Frame:
    return request(OFFSET, topic="orders", queueId=0)


def test_an_answer_that_means_no_is_an_error_unless_the_caller_expects_it() -> None:
    script = {OFFSET: lambda asked: response(asked, ResponseCode.QUERY_NOT_FOUND, remark="nothing here")}
    with scripted_cluster(script) as cluster, client_of(cluster.address) as client:
        with pytest.raises(QueryNotFound, match=rf"{cluster.address} .*nothing here"):
            client.call(cluster.address, question())
        answer = client.call(cluster.address, question(), also={ResponseCode.QUERY_NOT_FOUND})
        assert answer.code == ResponseCode.QUERY_NOT_FOUND


def test_an_answer_is_given_as_it_is_to_who_submits() -> None:
    script = {OFFSET: lambda asked: response(asked, ResponseCode.NO_PERMISSION, remark="no")}
    answers: list[Frame | QueueError] = []
    came = threading.Event()

    def done(answer: Frame | QueueError) -> None:
        answers.append(answer)
        came.set()

    with scripted_cluster(script) as cluster, client_of(cluster.address) as client:
        client.submit(cluster.address, question(), done)
        assert came.wait(10)
        assert isinstance(answers[0], Frame)
        with pytest.raises(NoPermission):
            client.call(cluster.address, question())


def test_who_submits_hears_of_a_broker_that_is_gone_even_while_it_is_left_alone() -> None:
    with scripted_cluster() as cluster:
        address = cluster.address
    answers: list[Frame | QueueError] = []
    came = threading.Event()

    def done(answer: Frame | QueueError) -> None:
        answers.append(answer)
        if len(answers) == 20:
            came.set()

    with client_of(address) as client:
        for _ in range(20):
            client.submit(address, question(), done)
        assert came.wait(10)
    assert {type(answer) for answer in answers} == {BrokerUnreachable}


def test_a_call_is_run_later() -> None:
    ran = threading.Event()
    with client_of("127.0.0.1:9") as client:
        begun = time.monotonic()
        client.later(0.1, ran.set)
        assert ran.wait(10)
        assert time.monotonic() - begun >= 0.1


def test_requests_of_brokers_are_answered_off_the_io_thread() -> None:
    threads: list[str] = []
    blocked, release = threading.Event(), threading.Event()

    def answer(asked: Frame, address: str) -> Frame:
        threads.append(threading.current_thread().name)
        blocked.set()
        assert release.wait(10)
        return response(asked, body=address.encode())

    with scripted_cluster() as cluster, client_of(cluster.address) as client:
        client.requests.on(INFO, answer)
        client.routes.of("orders")
        client.heartbeats.add_producer("tills")
        cluster.push(request(INFO, consumerGroup="shop", clientId=client.client_id))
        assert blocked.wait(10)
        client.heartbeats.beat()  # goes on while a handler takes its time
        release.set()
        (answered,) = cluster.wait_for_answers(1)
        assert answered.body == cluster.address.encode()
        assert threads[0] != "rmq-cluster-io"


def test_what_nobody_handles_and_what_fails_is_answered_too(caplog: pytest.LogCaptureFixture) -> None:
    def fail(asked: Frame, address: str) -> Frame:
        raise RuntimeError(f"a fault in the answer to {asked.code} of {address}")

    with scripted_cluster() as cluster, client_of(cluster.address) as client:
        client.routes.of("orders")
        client.heartbeats.add_producer("tills")
        asked = request(INFO, consumerGroup="shop", clientId=client.client_id)
        cluster.push(asked)
        assert cluster.wait_for_answers(1)[0].code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        client.requests.on(INFO, fail)
        cluster.push(asked)
        answer = cluster.wait_for_answers(2)[1]
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "RuntimeError: a fault" in (answer.remark or "")
    assert "a fault in the answer" in caplog.text


def test_a_oneway_request_of_a_broker_is_not_answered() -> None:
    handled = threading.Event()

    def handle(asked: Frame, address: str) -> Frame:
        handled.set()
        return response(asked, remark=address)

    with scripted_cluster() as cluster, client_of(cluster.address) as client:
        client.requests.on(CHANGED, handle)
        client.routes.of("orders")
        client.heartbeats.add_producer("tills")
        oneway = request(CHANGED, consumerGroup="shop")
        oneway.flag = 2
        cluster.push(oneway)
        assert handled.wait(10)
        client.heartbeats.beat()
        assert cluster.answers == []


def test_every_request_is_signed_over_its_sorted_fields_and_its_body() -> None:
    with scripted_cluster() as cluster, client_of(f"me:s3cret@{cluster.address}") as client:
        client.call(cluster.address, request(OFFSET, b"body", topic="orders", queueId=7))
        fields = cluster.asked(OFFSET)[0].fields
    signature = fields.pop("Signature")
    assert fields["AccessKey"] == "me"
    content = "".join(value for _, value in sorted(fields.items())).encode() + b"body"
    assert signature == base64.b64encode(hmac.digest(b"s3cret", content, "sha1")).decode()
    assert not any("s3cret" in value for value in fields.values())


def test_a_request_that_is_sent_again_is_signed_again() -> None:
    with scripted_cluster() as cluster, client_of(f"me:s3cret@{cluster.address}") as client:
        asked = question()
        client.call(cluster.address, asked)
        client.call(cluster.address, asked)
        first, second = cluster.asked(OFFSET)
        assert first.fields == second.fields
        assert first.opaque != second.opaque


def test_a_closed_client_refuses_everything_and_closes_again() -> None:
    with scripted_cluster() as cluster, client_of(cluster.address) as client:
        assert response_fields(OFFSET, client.call(cluster.address, question())) is not None
        client.close()
        for use in (
            lambda: client.call(cluster.address, question()),
            lambda: client.submit(cluster.address, question(), lambda _: None),
            lambda: client.tell(cluster.address, question()),
            lambda: client.routes.of("orders"),
            lambda: client.heartbeats.add_producer("tills"),
            client.heartbeats.beat,
            client.check_usable,
        ):
            with pytest.raises(StoreClosed, match="closed"):
                use()
        client.close()


def test_closing_takes_bounded_time_though_a_broker_is_silent() -> None:
    with scripted_cluster() as cluster, client_of(cluster.address, rest="?timeout=2") as client:
        client.routes.of("orders")
        client.heartbeats.add_producer("tills")
        cluster.script[RequestCode.UNREGISTER_CLIENT.value] = lambda _: None
        begun = time.monotonic()
        client.close()
        assert time.monotonic() - begun < 12


def test_client_ids_differ_and_name_the_unit() -> None:
    url = ClusterURL.parse("rocketmq://127.0.0.1:9?unit_name=west")
    clients = [*(ClusterClient(url) for _ in range(99)), ClusterClient(url, "me@host")]
    assert len({client.client_id for client in clients}) == 100
    assert all(client.client_id.endswith("@west") for client in clients)
    for client in clients:
        client.close()


def test_the_secret_is_in_no_text_of_a_client() -> None:
    with client_of("me:s3cret@127.0.0.1:9", rest="?timeout=2") as client:
        with pytest.raises(QueueError) as raised:
            client.routes.of("orders")
        assert "s3cret" not in f"{raised.value} {client!r} {client.url!r}"


def test_a_broker_that_refuses_a_key_is_understood_though_its_code_says_nothing() -> None:
    remark = "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=me, Aclpackage..."
    script = {OFFSET: lambda asked: response(asked, ResponseCode.SYSTEM_ERROR, remark=remark)}
    with scripted_cluster(script) as cluster, client_of(cluster.address) as client:
        with pytest.raises(NoPermission, match="signature"):
            client.call(cluster.address, question())
        script[OFFSET] = lambda asked: response(asked, ResponseCode.SYSTEM_ERROR, remark="something else")
        cluster.script.update({code.value: answer for code, answer in script.items()})
        with pytest.raises(AnswerError) as raised:
            client.call(cluster.address, question())
        assert type(raised.value) is AnswerError


def test_the_io_thread_must_not_wait_for_itself() -> None:
    raised: list[str] = []
    came = threading.Event()

    with scripted_cluster() as cluster, client_of(cluster.address) as client:

        def wait(answer: Frame | QueueError) -> None:
            try:
                client.call(cluster.address, question())
            except RuntimeError as error:
                raised.append(str(error))
            came.set()

        client.submit(cluster.address, question(), wait)
        assert came.wait(10)
    assert "must not wait" in raised[0]
