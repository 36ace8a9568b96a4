"""A server that only reads refuses what writes, whatever its form, and reads all the same."""

from __future__ import annotations

from rmqclient.broker.access.codes import WRITES
from rmqclient.broker.access.read_only import ReadOnly
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.request import Request
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from tests.broker.access.signing import pulled_from, sent_to
from tests.broker.asking import LOCAL, AskingPeer

seen: list[Frame] = []


def _done(request: Request) -> Frame:
    seen.append(request.frame)
    return Frame(0, flag=1)


def _asked(frame: Frame, counters: Counters) -> Frame:
    answer = ReadOnly(_done, counters).answer(Request(frame, AskingPeer(LOCAL)))
    assert answer is not None
    return answer


def test_every_request_that_writes_is_refused_and_counted() -> None:
    counters = Counters()
    for code in WRITES:
        answer = _asked(Frame(code, opaque=9), counters)
        assert (answer.code, answer.opaque) == (ResponseCode.NO_PERMISSION, 9)
        assert f"--read-only: {RequestCode(code).name} ({code.value})" in (answer.remark or "")
    assert _asked(sent_to("orders"), counters).code == ResponseCode.NO_PERMISSION
    assert counters.count(Refusal.READ_ONLY) == len(WRITES) + 1


def test_a_pull_is_answered_and_commits_nothing() -> None:
    pull = pulled_from("orders", "billing")
    pull.fields["sysFlag"] = "7"
    assert _asked(pull, Counters()).code == 0
    assert seen[-1].fields["sysFlag"] == "6"
    pull.fields["sysFlag"] = "no number"
    assert _asked(pull, Counters()).code == 0
