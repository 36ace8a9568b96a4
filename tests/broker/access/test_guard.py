"""Guard: who may do what with which topic and group, and what a stock client is told."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from rmqclient.broker.access.accounts import made_account, read_accounts
from rmqclient.broker.limits.counters import Refusal
from rmqclient.broker.routes import ADMINISTRATOR
from rmqclient.errors import AccountsUnusable
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame, FrameReader
from tests.broker.access.signing import OK, Guarded, account, pulled_from, routes, sent_to, signed
from tests.remoting.recordings import recorded_frames

TOPICS: dict[str, Any] = {"topicPerms": ["orders=PUB|SUB", "prices=SUB", "secrets=DENY"], "groupPerms": ["billing=SUB"]}


def test_nobody_comes_in_without_a_key_that_is_known_and_a_signature_that_is_right(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, account(**TOPICS))
    assert guarded.says(sent_to("orders")) == "No accessKey is configured"
    assert guarded.says(signed(sent_to("orders"), "nobody")) == "No acl config for nobody"
    wrong = "Check signature failed for accessKey=billing"
    assert guarded.says(signed(sent_to("orders"), secret=b"another")) == wrong
    changed = signed(sent_to("orders"))
    changed.body = b"another body"
    assert guarded.says(changed) == wrong
    unsigned = signed(sent_to("orders"))
    del unsigned.fields["Signature"]
    assert guarded.says(unsigned) == wrong
    assert guarded.says(signed(sent_to("orders"))) == OK
    assert guarded.counters.count(Refusal.ACCESS) == 5


def test_a_topic_and_a_group_allow_what_their_rule_says(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, account(**TOPICS))
    assert guarded.says(signed(sent_to("prices"))) == "No default permission for topic:prices"
    assert guarded.says(signed(sent_to("secrets"))) == "No default permission for topic:secrets"
    assert guarded.says(signed(sent_to("others"))) == "No default permission for topic:others"
    assert guarded.says(signed(pulled_from("prices", "billing"))) == OK
    assert guarded.says(signed(pulled_from("prices", "theirs"))) == "No default permission for group:theirs"
    assert guarded.says(signed(sent_to("%RETRY%theirs"))) == "No default permission for group:theirs"
    assert guarded.says(signed(sent_to("%RETRY%billing"))) == OK


def test_what_no_rule_names_has_the_default(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, account(defaultTopicPerm="PUB", defaultGroupPerm="SUB", topicPerms=["secrets=DENY"]))
    assert guarded.says(signed(sent_to("anything"))) == OK
    assert guarded.says(signed(sent_to("secrets"))) == "No default permission for topic:secrets"
    assert guarded.says(signed(pulled_from("anything", "any"))) == "No default permission for topic:anything"


@pytest.mark.guarantee("G107")
@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys_wheel_timer",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    ],
)
def test_no_default_opens_a_topic_with_messages_of_all_topics(tmp_path: Path, topic: str) -> None:
    wide: dict[str, Any] = {"defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "SUB"}
    guarded = Guarded(tmp_path, account(**wide), account("reader", topicPerms=[f"{topic}=SUB"], **wide))
    assert guarded.says(signed(pulled_from(topic, "g"))) == f"No default permission for topic:{topic}"
    assert guarded.says(signed(pulled_from(topic, "g"), "reader")) == OK


@pytest.mark.guarantee("G107")
def test_dead_letters_of_a_group_are_the_group(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, account(defaultTopicPerm="PUB|SUB", groupPerms=["mine=SUB"]))
    assert guarded.says(signed(sent_to("%DLQ%vault"))) == "No default permission for group:vault"
    assert guarded.says(signed(pulled_from("%DLQ%vault", "mine"))) == "No default permission for group:vault"
    assert guarded.says(signed(pulled_from("%DLQ%mine", "mine"))) == OK


@pytest.mark.guarantee("G107")
@pytest.mark.parametrize("name", ["RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"])
def test_no_failed_message_says_that_it_is_of_a_topic_which_the_key_may_not_use(tmp_path: Path, name: str) -> None:
    guarded = Guarded(tmp_path, account(topicPerms=["orders=SUB"], groupPerms=["billing=SUB"]))
    for topic, said in (("orders", OK), ("secrets", "No default permission for topic:secrets")):
        frame = sent_to("%RETRY%billing")
        frame.fields["properties"] = f"{name}\x01{topic}\x02"
        assert guarded.says(signed(frame)) == said


@pytest.mark.parametrize("late", ["_UNIQUE_KEY_QUERY", "__ZONE_NAME"])
def test_a_field_that_a_client_adds_late_is_signed_or_not(tmp_path: Path, late: str) -> None:
    guarded = Guarded(tmp_path, account(**TOPICS))
    before, after = sent_to("orders"), signed(sent_to("orders"))
    for frame in (before, after):
        frame.fields[late] = "true"
    assert guarded.says(signed(before)) == OK
    assert guarded.says(after) == OK
    after.fields["other"] = "true"
    assert guarded.says(after) == "Check signature failed for accessKey=billing"


def test_a_heartbeat_and_locks_need_every_topic_and_group_in_them(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, account(**TOPICS))

    def heartbeat(group: str, topic: str) -> Frame:
        consumer = {"groupName": group, "subscriptionDataSet": [{"topic": topic, "subString": "*"}]}
        return Frame(RequestCode.HEART_BEAT, body=json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode())

    assert guarded.says(signed(heartbeat("billing", "orders"))) == OK
    assert guarded.says(signed(heartbeat("theirs", "orders"))) == "No default permission for group:theirs"
    assert guarded.says(signed(heartbeat("billing", "secrets"))) == "No default permission for topic:secrets"
    assert "JSON" in guarded.says(signed(Frame(RequestCode.HEART_BEAT, body=b"{]")))
    queue = {"topic": "secrets", "brokerName": "b", "queueId": 0}
    body = json.dumps({"consumerGroup": "billing", "clientId": "c", "mqSet": [queue]}).encode()
    assert (
        guarded.says(signed(Frame(RequestCode.LOCK_BATCH_MQ, body=body))) == "No default permission for topic:secrets"
    )


def test_only_an_administrator_changes_topics_groups_and_settings(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, account(**TOPICS), account("operator", admin=True))
    for code in (17, 25, 200, 207, 215, 222, 216):
        change = Frame(code)
        assert guarded.says(signed(change)) == (
            f"Need admin permission for request code={code}, but accessKey=billing is not"
        )
        assert guarded.says(signed(Frame(code), "operator")) == OK
    # And an administrator without rules may do everything else, too
    assert guarded.says(signed(sent_to("secrets"), "operator")) == OK


def test_a_white_address_needs_no_signature(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, account(whiteRemoteAddress="10.1.0.*"), white=("127.0.0.1", "10.0.0.{7,8}"))
    assert guarded.says(sent_to("secrets"), "127.0.0.1") == OK
    assert guarded.says(sent_to("secrets"), "10.0.0.8") == OK
    assert guarded.says(sent_to("secrets"), "10.0.0.9") == "No accessKey is configured"
    # That of an account still names the account
    named = sent_to("secrets")
    named.fields["AccessKey"] = "billing"
    assert guarded.says(named, "10.1.0.77") == OK
    assert guarded.says(named, "10.2.0.77") == "Check signature failed for accessKey=billing"


def test_a_made_secret_signs_although_the_file_has_only_its_hash(tmp_path: Path) -> None:
    made = made_account("billing")
    secret = made["secretKey"]
    assert len(secret) > 64
    assert secret not in json.dumps(made["account"])
    assert made["account"]["hashedSecretKey"] == hashlib.sha1(secret.encode()).hexdigest()
    guarded = Guarded(tmp_path, made["account"] | {"topicPerms": ["orders=PUB"]})
    assert guarded.says(signed(sent_to("orders"), secret=secret.encode())) == OK
    assert secret not in repr(guarded.guard._accounts)
    assert made["account"]["hashedSecretKey"] not in repr(guarded.guard._accounts)


def test_a_changed_file_is_read_again_and_one_with_a_mistake_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guarded = Guarded(tmp_path, account())
    guarded.write(account(topicPerms=["orders=PUB"]))
    assert guarded.says(signed(sent_to("orders"))) != OK
    guarded.now += 6
    assert guarded.says(signed(sent_to("orders"))) == OK
    guarded.path.write_text("{", encoding="utf-8")
    guarded.now += 6
    assert guarded.says(signed(sent_to("orders"))) == OK
    assert "stay as they were" in caplog.text
    guarded.path.unlink()
    guarded.now += 6
    assert guarded.says(signed(sent_to("orders"))) == OK


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"secretKey": "", "accessKey": "billing"}, "either a secretKey or a hashedSecretKey"),
        (account(hashedSecretKey="0" * 40), "either a secretKey or a hashedSecretKey"),
        ({"accessKey": "billing", "hashedSecretKey": "zz"}, "40 digits"),
        (account(defaultTopicPerm="ALL"), "'ALL' is not one of DENY"),
        (account(topicPerms=["orders"]), "'orders' is not a rule"),
        (account(topicPerm=[]), "unknown field"),
        (account("a"), "at least 6"),
        (account(whiteRemoteAddress="10.0.0.300"), "between 0 and 255"),
        (account(whiteRemoteAddress="host"), "neither an address"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_place(tmp_path: Path, entry: dict[str, Any], why: str) -> None:
    path = tmp_path / "acl.json"
    path.write_text(json.dumps({"accounts": [entry]}), encoding="utf-8")
    with pytest.raises(AccountsUnusable, match=why) as raised:
        read_accounts(path)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there_or_has_a_key_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AccountsUnusable, match="No such file"):
        read_accounts(tmp_path / "acl.json")
    path = tmp_path / "acl.json"
    path.write_text(json.dumps({"accounts": [account(), account()]}), encoding="utf-8")
    with pytest.raises(AccountsUnusable, match="twice"):
        read_accounts(path)


def test_a_file_that_everybody_can_read_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    guarded = Guarded(tmp_path, account())
    assert "every user of this host" not in caplog.text
    guarded.path.chmod(0o644)
    guarded.guard.open()
    assert "every user of this host" in caplog.text


def test_every_recorded_request_of_a_client_is_refused_unsigned_and_passes_signed(tmp_path: Path) -> None:
    guarded = Guarded(
        tmp_path, account(admin=True), account("reader", defaultTopicPerm="PUB|SUB", defaultGroupPerm="SUB")
    )
    for bundle in ("java", "go", "cpp", "node"):
        for recorded in recorded_frames(bundle):
            if recorded.is_from_client and not recorded.is_response and recorded.body is not None:
                frame = _frame_of(recorded.raw)
                assert guarded.says(frame) == "No accessKey is configured"
                assert guarded.says(signed(_frame_of(recorded.raw))) == OK
                if routes()[frame.code].needs is not ADMINISTRATOR:
                    assert guarded.says(signed(_frame_of(recorded.raw), "reader")) == OK, recorded.header


def _frame_of(raw: bytes) -> Frame:
    (frame,) = FrameReader().feed(raw)
    return frame
