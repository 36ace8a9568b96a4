"""A server that only reads refuses what writes, whatever its form, and reads all the same."""

from __future__ import annotations

from rmqclient.broker.access.read_only import ReadOnly
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.request import Request
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from tests.broker.access.signing import pulled_from, routes, sent_to
from tests.broker.asking import LOCAL, AskingPeer

MESSAGES = {10, 36, 37, 310, 320, 324, 325, 370}
PROGRESS = {15}
TOPICS_AND_GROUPS = {17, 18, 200, 207, 215, 216, 217, 222, 225, 314, 323}
SETTINGS = {25, 50, 51, 53, 100, 102, 103, 104, 205, 318, 327}
FILES = {306, 316, 329}
WRITES = MESSAGES | PROGRESS | TOPICS_AND_GROUPS | SETTINGS | FILES

seen: list[Frame] = []


def _done(request: Request) -> Frame:
    seen.append(request.frame)
    return Frame(0, flag=1)


def _asked(frame: Frame, counters: Counters) -> Frame:
    answer = ReadOnly(routes().get, _done, counters).answer(Request(frame, AskingPeer(LOCAL)))
    assert answer is not None
    return answer


def test_every_request_that_writes_is_refused_and_counted() -> None:
    counters = Counters()
    assert {code for code, route in routes().items() if route.writes} == WRITES
    for code in WRITES:
        answer = _asked(Frame(code, opaque=9), counters)
        assert (answer.code, answer.opaque) == (ResponseCode.NO_PERMISSION, 9)
        assert f"--read-only: {RequestCode(code).name} ({code})" in (answer.remark or "")
    assert _asked(sent_to("orders"), counters).code == ResponseCode.NO_PERMISSION
    assert counters.count(Refusal.READ_ONLY) == len(WRITES) + 1


def test_a_pull_is_answered_and_commits_nothing() -> None:
    pull = pulled_from("orders", "billing")
    pull.fields["sysFlag"] = "7"
    assert _asked(pull, Counters()).code == 0
    assert seen[-1].fields["sysFlag"] == "6"
    pull.fields["sysFlag"] = "no number"
    assert _asked(pull, Counters()).code == 0
