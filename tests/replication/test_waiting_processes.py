"""Sends that wait for replicas, with processes: a server, a follower, producers beside them, and kills of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmqclient import Producer
from rmqclient.errors import ReplicaUnavailable
from rmqclient.store import open_store
from rmqclient.workers.cli import rmq
from tests.replication.pairs import follow, log_bytes, serve, until
from tests.support.stores import SMALL, TOPIC


@pytest.mark.sweep
@pytest.mark.guarantee("G76")
@pytest.mark.guarantee("G77")
def test_sends_beside_a_server_wait_for_its_follower_and_are_refused_after_the_kill_of_either(tmp_path: Path) -> None:
    root, copy = tmp_path / "primary", tmp_path / "replica"
    open_store(root, SMALL).close()
    with (
        serve(root, "--wait-for", "disk", "--replica-timeout-ms", "2000") as server,
        open_store(root, SMALL, housekeeping=False) as store,
        Producer(store) as producer,
    ):
        with pytest.raises(ReplicaUnavailable):
            producer.send(TOPIC, b"none")
        assert standing(root)["in_sync"] is False
        with follow(copy, server) as follower:
            until(lambda: store.replicas.are_in_sync, "the replica is in sync")

            # Then each send returns with its message on the disk of the replica
            with open_store(copy, SMALL, housekeeping=False) as replica:
                for number in range(30):
                    sent = producer.send(TOPIC, b"%d" % number)
                    assert sent.replicated is True
                    assert replica.state.flushed_to >= sent.commit_log_end
                assert log_bytes(replica) == log_bytes(store)
            shown = standing(root)
            assert (shown["in_sync"], shown["replicated_to"], shown["unreplicated_bytes"]) == (True, shown["end"], 0)

            # And the primary says who is connected
            until(lambda: standing(root)["replicas"], "the replica is listed")
            (connected,) = standing(root)["replicas"]
            assert connected["copy"].endswith(f":{copy}")
            assert connected["reports"] == "disk"
            until(lambda: standing(root)["replicas"][0]["missing_bytes"] == 0, "the list is written again")
            follower.kill()
        until(lambda: standing(root)["replicas"] == [], "nobody is listed")
        until(lambda: not store.replicas.are_in_sync, "the follower is missed")
        with pytest.raises(ReplicaUnavailable):
            producer.send(TOPIC, b"none")

        # And the same when the server is killed that said how far the follower is
        with follow(copy, server):
            until(lambda: store.replicas.are_in_sync, "the replica is in sync again")
            assert producer.send(TOPIC, b"again").replicated is True
            server.kill()
            until(lambda: not store.replicas.are_in_sync, "the server is missed")
            with pytest.raises(ReplicaUnavailable):
                producer.send(TOPIC, b"none")


def standing(root: Path) -> dict[str, Any]:
    """Return how a primary stands, by the command."""
    result = CliRunner().invoke(rmq, ["replica", "status", "--store", str(root), "-o", "json"], prog_name="rmq")
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found[0]
