"""Answers that say no, as exceptions."""

from __future__ import annotations

import pickle

import pytest

from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import ERRORS, AnswerError, SystemBusy, TopicNotFound, error_of
from rmqclient.remoting.frame import Frame
from rmqclient.store.errors import MessageRejected, QueueError, UnknownGroup, UnknownTopic


def test_an_answer_becomes_the_error_of_its_code() -> None:
    error = error_of(Frame(ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info"), "10.0.0.1:9876")
    assert type(error) is TopicNotFound
    assert str(error) == "10.0.0.1:9876 answered 17 TOPIC_NOT_EXIST: No topic route info"
    assert (error.code, error.remark, error.address) == (17, "No topic route info", "10.0.0.1:9876")


def test_a_code_without_a_class_is_an_answer_error() -> None:
    error = error_of(Frame(4711))
    assert type(error) is AnswerError
    assert str(error) == "the answer is 4711 UNKNOWN"


def test_errors_are_those_that_applications_know_of_a_local_store() -> None:
    assert isinstance(error_of(Frame(ResponseCode.TOPIC_NOT_EXIST)), UnknownTopic)
    assert isinstance(error_of(Frame(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)), UnknownGroup)
    assert isinstance(error_of(Frame(ResponseCode.MESSAGE_ILLEGAL)), MessageRejected)


def test_an_error_says_whether_the_call_may_succeed_later_and_whether_the_message_is_stored() -> None:
    assert SystemBusy(2).retryable
    assert not error_of(Frame(ResponseCode.NO_PERMISSION)).retryable
    assert {code for code, kind in ERRORS.items() if kind.stored} == {10, 11, 12}


@pytest.mark.parametrize("code", [*ERRORS, 4711])
def test_errors_survive_pickling(code: int) -> None:
    error = error_of(Frame(code, remark="why"), "10.0.0.1:10911")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert isinstance(again, QueueError)
    assert (str(again), again.code, again.remark, again.address) == (str(error), code, "why", "10.0.0.1:10911")
