"""Mutated requests against a server, some thousands of them; and what the client of that rig finds wrong."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqclient.remoting.frame import FrameReader
from tests.torture.damage.frames import Requests
from tests.torture.served import serve_fuzz
from tests.torture.served.mutating_client import Bulk, Share, send_share


@pytest.mark.sweep
def test_mutated_requests_get_typed_answers_and_the_server_goes_on(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    result = serve_fuzz.run(seed, 10_000, tmp_path)
    assert result.problems == []
    assert result.figures["mutated requests that the server read"] == 10_000


def test_most_mutated_requests_are_still_frames() -> None:
    rng, requests = random.Random(1), Requests()
    whole = sum(requests.one(rng).is_whole for _ in range(2_000))
    assert 1_800 < whole < 2_000


def test_what_comes_in_bulk_are_frames_and_no_two_batches_are_equal() -> None:
    batches = list(Bulk(random.Random(1)).batches(2_500))
    assert [batch.frames for batch in batches] == [1_000, 1_000, 500]
    assert len({batch.data for batch in batches}) == 3
    for batch in batches:
        reader = FrameReader()
        assert len(reader.feed(batch.data)) == batch.frames
        assert (reader.damage, reader.held) == (None, 0)


@pytest.mark.parametrize(
    ("answer", "found"), [(b"", "closed a connection on which only frames came"), (b"\xff" * 16, "an answer begins")]
)
def test_a_server_that_closes_or_answers_otherwise_is_found_out(answer: bytes, found: str) -> None:
    with answering(answer) as address:
        seen = send_share(address, Share(seed=1, frames=100))
    assert len(seen.problems) == 1
    assert found in seen.problems[0]
    assert seen.counts["read"] == 0


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Answer the first client with some bytes when it has sent everything it can, and close."""

    def serve() -> None:
        client, _ = listening.accept()
        with client:
            client.recv(1 << 20)
            client.sendall(answer)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 20):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join()
