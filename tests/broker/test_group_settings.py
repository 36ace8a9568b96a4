"""What an administrator said about groups, kept in RocketMQ's form."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from rmqclient.broker.address import Address
from rmqclient.broker.group_settings import GroupSettings
from rmqclient.remoting.bodies import GroupConfig
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.store.errors import StoreCorrupt

CLIENT = Address("10.0.0.9", 40_000)


def test_a_group_that_nobody_knows_has_the_defaults(tmp_path: Path) -> None:
    groups = GroupSettings(tmp_path)
    assert groups.find("billing") is None
    assert (groups.settings("billing").most_retries, groups.settings("billing").may_consume) == (16, True)


def test_settings_are_kept_over_a_restart(tmp_path: Path) -> None:
    GroupSettings(tmp_path).change(GroupConfig("billing", may_consume=False, most_retries=3))
    found = GroupSettings(tmp_path).settings("billing")
    assert (found.may_consume, found.most_retries) == (False, 3)


def test_the_file_is_as_a_broker_writes_it(tmp_path: Path) -> None:
    groups = GroupSettings(tmp_path)
    groups.change(GroupConfig("billing", most_retries=3))
    document = orjson.loads((tmp_path / "config" / "subscriptionGroup.json").read_bytes())
    assert document["subscriptionGroupTable"] == {
        "billing": {
            "brokerId": 0,
            "consumeBroadcastEnable": True,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "groupName": "billing",
            "notifyConsumerIdsChangedEnable": True,
            "retryMaxTimes": 3,
            "retryQueueNums": 1,
            "whichBrokerWhenConsumeSlowly": 1,
        }
    }
    assert document["dataVersion"]["counter"] == 1


def test_fields_that_a_newer_broker_wrote_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "config" / "subscriptionGroup.json"
    path.parent.mkdir()
    path.write_text('{"subscriptionGroupTable":{"billing":{"groupName":"billing","retryMaxTimes":5,"fresh":[1]}}}')
    groups = GroupSettings(tmp_path)
    groups.change(GroupConfig("audit"))
    document = orjson.loads(path.read_bytes())
    assert document["subscriptionGroupTable"]["billing"]["fresh"] == [1]
    assert document["subscriptionGroupTable"]["billing"]["retryMaxTimes"] == 5


def test_a_group_that_a_client_came_with_reaches_the_file_at_the_end(tmp_path: Path) -> None:
    groups = GroupSettings(tmp_path)
    assert groups.auto_create("billing", CLIENT) == GroupConfig("billing")
    assert GroupSettings(tmp_path).find("billing") is None
    groups.close()
    assert GroupSettings(tmp_path).find("billing") == GroupConfig("billing")


def test_a_deleted_group_has_the_defaults_again(tmp_path: Path) -> None:
    groups = GroupSettings(tmp_path)
    groups.change(GroupConfig("billing", may_consume=False))
    assert groups.delete("billing")
    assert not groups.delete("billing")
    assert GroupSettings(tmp_path).settings("billing").may_consume


@pytest.mark.parametrize("name", ["", "a/b", "../x", "x" * 256, "größe"])
def test_a_name_that_no_group_can_have_is_refused(tmp_path: Path, name: str) -> None:
    groups = GroupSettings(tmp_path)
    with pytest.raises(AnswerError) as raised:
        groups.auto_create(name, CLIENT)
    assert raised.value.code == ResponseCode.SYSTEM_ERROR
    with pytest.raises(AnswerError) as raised:
        groups.change(GroupConfig(name))
    assert raised.value.code == ResponseCode.SYSTEM_ERROR
    assert groups.table().groups == {}


def test_a_damaged_file_is_refused_and_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "config" / "subscriptionGroup.json"
    path.parent.mkdir()
    path.write_text('{"subscriptionGroupTable":{"billing":{"retryMaxTimes":{}}}}')
    with pytest.raises(StoreCorrupt) as raised:
        GroupSettings(tmp_path)
    assert raised.value.path == path
