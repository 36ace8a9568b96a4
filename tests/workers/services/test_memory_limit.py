"""A container with less memory than the log takes: the kernel takes pages of files back, and kills nobody."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rmqclient.metrics import Sampler
from rmqclient.store.files.file_system import mount_of
from tests.support.host.memory_limit import CannotLimit, MemoryLimit, memory_limit
from tests.workers.services.child_sender import BODY_BYTES
from tests.workers.supervised import COMMAND, LONG_S, REPOSITORY, Supervised, environment, eventually

LIMIT_BYTES = 160 << 20
"""For five interpreters, which have some 90 MiB of their own, and for the pages of all files that they touch."""
MESSAGES = 3 * LIMIT_BYTES // BODY_BYTES


@pytest.fixture
def limit(tmp_path: Path) -> Iterator[MemoryLimit]:
    mount = mount_of(tmp_path)
    if mount is not None and mount.kind in {"tmpfs", "ramfs"}:
        pytest.skip(f"{tmp_path} is in memory: its pages cannot be taken back")
    with ExitStack() as stack:
        try:
            limited = stack.enter_context(memory_limit(LIMIT_BYTES))
        except CannotLimit as error:
            pytest.skip(str(error))
        yield limited


@pytest.mark.sweep
def test_a_sender_and_a_worker_do_their_work_in_a_third_of_the_memory_that_the_log_takes(
    limit: MemoryLimit, supervise: Callable[..., Supervised]
) -> None:
    # Given a supervisor with one worker, in a container
    supervised = supervise("ignoring", "--processes", "1", command=limit.within(*COMMAND))
    workers = supervised.ready(1)

    # When a sender in the same container sends three times what the container may have in memory
    sender = (sys.executable, "-m", "tests.workers.services.child_sender", str(supervised.root), str(MESSAGES))
    sent = subprocess.run(limit.within(*sender), cwd=REPOSITORY, env=environment(), timeout=LONG_S, check=False)

    # Then every message is sent and handled, once
    assert sent.returncode == 0
    assert log_bytes(supervised.root) > 3 * LIMIT_BYTES
    eventually(lambda: finished(supervised.root) == (MESSAGES, 0), f"{MESSAGES} handled messages", supervised)

    # And nobody was killed, although the limit was reached
    assert limit.most_bytes > 0.9 * LIMIT_BYTES
    assert limit.kills == 0
    assert supervised.pids() == workers


def log_bytes(root: Path) -> int:
    return sum(path.stat().st_size for path in (root / "commitlog").iterdir())


def finished(root: Path) -> tuple[int, int]:
    """How many messages were handled, and how many deliveries failed."""
    with Sampler(root) as sampler:
        queues = sampler.sample().group_queues
    return sum(each.handled for each in queues), sum(each.failed for each in queues)
