"""A log that grows for minutes, and the memory of everybody at it: a sender, a worker, its supervisor, a server."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rmqclient.metrics import Sampler
from rmqclient.store import open_store
from rmqclient.testing import serve
from tests.interop.rocketmq import TOP
from tests.torture.kills.delays import memory_of
from tests.torture.result import Result, Rig
from tests.torture.wholes.child_memory import CONFIG, GROUPS, PER_SECOND
from tests.workers.supervised import COMMAND, children_of, environment

CLAIM = (
    f"While {PER_SECOND:,} messages a second are sent, handled by a worker, indexed, and read by a remote member, no "
    "process has more than 256 MiB resident, however long the log is."
)
MOST_MIB = 256
ROUND_S = 60.0
_LOOK_S = 0.2
_END_S = 60.0
_CATCH_UP_S = 120.0
"""For the readers, which a busy machine holds up more than the sender."""
_MODULE = "tests.torture.wholes.child_memory"


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Run for so many minutes, which take 1.2 GB each; there is nothing random, so ``seed`` is not used."""
    del seed
    result, root = Result(CLAIM), scratch / "store"
    open_store(root, CONFIG).close()
    most: dict[str, float] = {}
    with ExitStack() as stack:
        server = stack.enter_context(serve(root))
        run_app = (*COMMAND, "run", f"{_MODULE}:app", "--store", str(root), "--processes", "1")
        supervisor = stack.enter_context(_child(scratch, *run_app))
        sender = stack.enter_context(_child(scratch, sys.executable, "-m", _MODULE, "send", str(root)))
        reader = stack.enter_context(_child(scratch, sys.executable, "-m", _MODULE, "read", server.url))
        known = {"sender": sender.pid, "supervisor": supervisor.pid, "server": server.pid, "remote reader": reader.pid}
        end = time.monotonic() + rounds * ROUND_S
        while time.monotonic() < end and all(child.poll() is None for child in (supervisor, sender, reader)):
            _look(known | _workers(supervisor.pid), most)
            time.sleep(_LOOK_S)
        sent = _end(sender)
        while time.monotonic() < end + _CATCH_UP_S and min(_handled(root, group) for group in GROUPS) < sent / 2:
            _look(known | _workers(supervisor.pid), most)
            time.sleep(_LOOK_S)
        read, handled = _end(reader), _handled(root, "local")
    result.figures |= {"sent": sent, "handled": handled, "read by the remote member": read}
    result.figures |= {"log, MiB": sum(path.stat().st_size for path in (root / "commitlog").iterdir()) >> 20}
    result.figures |= {f"{name}, most MiB": round(size) for name, size in sorted(most.items())}
    result.problems += [f"{name} had {size:.0f} MiB" for name, size in most.items() if size > MOST_MIB]
    if min(handled, read) < sent / 2:
        result.problems.append(f"of {sent} messages {handled} were handled and {read} read: too few to tell")
    return result


def _end(child: subprocess.Popen[bytes]) -> int:
    """Let a child come to its end; return how many messages it had."""
    return int(child.communicate(b"end\n", _END_S)[0] or -1)


def _handled(root: Path, group: str) -> int:
    with Sampler(root) as sampler:
        return sum(each.handled for each in sampler.sample().group_queues if each.group == group)


def _look(processes: Mapping[str, int], most: dict[str, float]) -> None:
    for name, pid in processes.items():
        with suppress(FileNotFoundError, ProcessLookupError):
            most[name] = max(most.get(name, 0.0), memory_of(pid)["whole"])


def _workers(supervisor: int) -> dict[str, int]:
    """Return the children of a supervisor and theirs: its fork server, and the worker."""
    with suppress(FileNotFoundError, ProcessLookupError):
        children = children_of(supervisor)
        return {f"child {number} of the supervisor": pid for number, pid in enumerate(children)} | {
            f"worker {number}": pid for child in children for number, pid in enumerate(children_of(child))
        }
    return {}


@contextmanager
def _child(scratch: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    with (scratch / "log").open("ab") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment(), cwd=TOP
        )
        try:
            yield child
        finally:
            child.terminate()  # a supervisor then ends its workers
            try:
                child.communicate(timeout=_END_S)
            finally:
                child.kill()


RIG = Rig("memory", 10, run)
