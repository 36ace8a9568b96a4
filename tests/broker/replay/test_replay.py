"""Every recorded session of real clients is answered as the real broker answered it, or there is a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient.store import open_store
from rmqclient.testing import serve
from tests.broker.replay.connections import Connections
from tests.broker.replay.preparation import CONFIG, commit_as_shown, prepare
from tests.broker.replay.reasons import REASONS, Reason, reason_of
from tests.broker.replay.replay import Replay, Replayed
from tests.remoting.recordings import RecordedFrame, recorded_sessions

SESSIONS = sorted(session for session in recorded_sessions() if not session.startswith("registration"))
"""All but those of brokers that register with a name server: the server is both, and takes no other broker's word."""

_LONG_S = 4.0
"""A session that took longer is replayed with the sweeps: a replay waits where the recording did."""


def seconds_of(session: str) -> float:
    """Return how long a recording took."""
    times = [event.time_s for event in recorded_sessions()[session] if isinstance(event, RecordedFrame)]
    return max(times) - min(times)


@pytest.mark.parametrize(
    "session",
    [pytest.param(each, marks=pytest.mark.sweep if seconds_of(each) > _LONG_S else ()) for each in SESSIONS],
)
def test_a_session_is_answered_as_the_real_broker_answered_it(session: str, tmp_path: Path) -> None:
    replayed = replay(session, tmp_path / "store")
    unexplained = [str(difference) for difference in replayed.differences if reason_of(difference) is None]
    assert replayed.equal + len(replayed.differences) > 0
    assert not unexplained, "\n".join(unexplained)


def replay(session: str, root: Path) -> Replayed:
    """Send what the clients of a session sent to a new server."""
    events = recorded_sessions()[session]
    with open_store(root, CONFIG) as store:
        prepare(store, events)
        with serve(root) as server, Connections(server.address) as connections:
            commit_as_shown(connections, events)
            return Replay(session, events, connections).run()


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.sentence[:60])
def test_every_reason_is_a_sentence(reason: Reason) -> None:
    assert reason.sentence[0].isupper()
    assert reason.sentence.endswith(".")
