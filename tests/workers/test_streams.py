"""Standard streams that are closed, or that nothing can be written to: the work goes on without them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.store import open_store
from tests.workers.supervised import COMMAND, Supervised, environment, eventually


@pytest.mark.parametrize(
    "streams",
    [
        "2>&-",
        ">/dev/full 2>&1",
        pytest.param(">&- 2>&-", marks=pytest.mark.sweep),
        pytest.param("<&- >&- 2>&-", marks=pytest.mark.sweep),
    ],
)
def test_messages_are_handled_whatever_the_standard_streams_are(
    supervise: Callable[..., Supervised], streams: str
) -> None:
    supervised = supervise("obedient", "--processes", "1", command=("sh", "-c", f'exec "$0" "$@" {streams}', *COMMAND))
    eventually((supervised.root / "lock").exists, "the store")
    supervised.send("one")
    pid = supervised.recorded("done one")
    for process in (supervised.process.pid, pid):  # a file of the store under such a number would be written to
        leads_to = [str(Path(f"/proc/{process}/fd/{number}").readlink()) for number in range(3)]
        assert [place for place in leads_to if place.startswith(str(supervised.root))] == []
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.exit_code() == 0


@pytest.mark.parametrize("arguments", [["--help"], ["check"], ["doctor"], ["group", "ls", "-o", "json"]])
def test_a_command_whose_output_cannot_be_written_says_so_in_a_line(tmp_path: Path, arguments: list[str]) -> None:
    open_store(tmp_path).close()
    settings = {**environment(), "RMQ_STORE": str(tmp_path)}
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, env=settings, check=False)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1

    # And one whose reader has gone says nothing
    command = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=settings)
    with command as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
