"""Hostile sends: whatever the fields hold, the answer is a code and a text, and the store stays whole."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pytest

from rmqclient.broker.sending.waits import RecallHandle
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from rmqclient.store.inspect.verify import verify
from tests.broker.asking import Asking
from tests.broker.sending.sends import ONES, read, send_of
from tests.workers.commands.test_cli import run

ROUNDS = 1_500
NUMBERS = ("", "0", "-1", "1", "3", "4", "8", "12", "99", "1.5", "NaN", " 1", "٣", "1e3", "9" * 400)
LIMITS = tuple(str(sign * 2**bits + more) for sign in (1, -1) for bits in (31, 63) for more in (-1, 0))
NAMES = (
    "orders", "../../x", "%RETRY%billing", "%DLQ%billing", "%RETRY%", "DefaultCluster_REPLY_TOPIC", "TBW102",
    "RMQ_SYS_TRANS_HALF_TOPIC", "t" * 200, "é" * 100, "\U0001f600", "\x00", "\x01", "\x02", "true", "false", "x",
)  # fmt: skip
PROPERTIES = (
    "K\x01v", "\x01v", "K\x01", "\x02\x02", "DELAY\x012", "DELAY\x01-9", f"DELAY\x01{2**70}", "WAIT\x01maybe",
    "TIMER_DELAY_SEC\x013600", f"TIMER_DELIVER_MS\x01{2**62}", "TIMER_DELAY_MS\x01\x02", "TRAN_MSG\x01true",
    "UNIQ_KEY\x01" + "é" * 50, "TRAN_MSG\x01true\x02PGROUP\x01makers", "INNER_NUM\x013", "k\x01" + "v" * 32_760,
    "REPLY_TO_CLIENT\x01nobody\x02CORRELATION_ID\x01c\x02TTL\x01" + "9" * 30, "REPLY_TO_CLIENT\x01" + "n" * 5_000,
    "RETRY_TOPIC\x01../../x\x02ORIGIN_MESSAGE_ID\x01zz",
)  # fmt: skip
VALUES = NUMBERS + LIMITS + NAMES + PROPERTIES


def kinds(client: Asking) -> list[Frame]:
    """Return a good request of each kind."""
    place = read(client, client.ask_frame(send_of(properties={**ONES, "TRAN_MSG": "true", "PGROUP": "makers"})))
    batch = (22 + 3).to_bytes(4, "big") + bytes(12) + (3).to_bytes(4, "big") + b"one" + bytes(2)
    half: dict[str, Any] = {"tranStateTableOffset": place.queue_offset, "commitLogOffset": place.commit_log_offset}
    handle = RecallHandle("orders", "broker-a", 2**50, "A" * 32).text()
    back: dict[str, Any] = {
        "offset": place.commit_log_offset,
        "group": "billing",
        "delayLevel": 0,
        "maxReconsumeTimes": 3,
    }
    return [
        send_of(),
        send_of(code=RequestCode.SEND_MESSAGE),
        send_of(batch * 3, code=RequestCode.SEND_BATCH_MESSAGE, batch=True),
        send_of(code=RequestCode.SEND_REPLY_MESSAGE, topic="DefaultCluster_REPLY_TOPIC", queueId=0),
        request(RequestCode.CONSUMER_SEND_MSG_BACK, **back),
        request(
            RequestCode.END_TRANSACTION, producerGroup="makers", commitOrRollback=8, msgId="x", **half,
        ),
        request(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=place.offset_message_id),
        request(RequestCode.RECALL_MESSAGE, topic="orders", producerGroup="makers", recallHandle=handle),
    ]  # fmt: skip


def changed(frame: Frame, chance: random.Random) -> Frame:
    """Return a request with some fields replaced or lost, and perhaps another body."""
    fields = dict(frame.fields)
    for name in chance.sample(sorted(fields), chance.randint(1, min(3, len(fields)))):
        if chance.random() < 0.1:
            del fields[name]
        else:
            fields[name] = chance.choice(VALUES)
    body = bytearray(frame.body)
    if body and chance.random() < 0.5:
        for _ in range(chance.randint(1, 4)):
            body[chance.randrange(len(body))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
    if chance.random() < 0.1:
        body = body[: chance.randrange(len(body) + 1)]
    return Frame(frame.code, fields, bytes(body), version=chance.choice((0, 63, 407, 479)))


def test_changed_requests_get_typed_answers(client: Asking, caplog: pytest.LogCaptureFixture) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    good = kinds(client)
    with caplog.at_level(logging.ERROR):
        for _ in range(ROUNDS):
            frame = changed(chance.choice(good), chance)
            if frame.code == RequestCode.END_TRANSACTION and frame.fields.get("commitOrRollback") not in {"8", "12"}:
                continue  # an undecided transaction is never answered
            answer = client.ask_frame(frame)
            assert answer.is_response
            assert answer.code == 0 or answer.remark, f"seed {seed}: {frame}"
    said = [record.getMessage() for record in caplog.records if record.name.startswith("rmqclient.broker")]
    assert [text for text in said if "failed" in text] == [], f"seed {seed}"
    root = client.broker.store.root
    assert {path.name for path in (root / "consumequeue").iterdir()} <= set(client.broker.store.topics.topics())
    client.broker.close()
    client.broker.store.close()
    assert list(verify(root)) == []


@pytest.mark.parametrize("born_ms", [2**63 - 1, -(2**63), 10**15])
def test_a_message_whose_time_no_calendar_has_is_shown_with_that_number(
    client: Asking, tmp_path: Path, born_ms: int
) -> None:
    assert client.ask_frame(send_of(bornTimestamp=born_ms)).code == 0
    for command in ("get", "trace"):
        shown = run("message", command, "1:0", "--topic", "orders", "--store", str(tmp_path))
        assert (shown.exit_code, f"{born_ms} ms since 1970" in shown.stdout) == (0, True), shown.stdout
