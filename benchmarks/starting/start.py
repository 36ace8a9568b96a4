"""Start: the time that an import and a worker take to start, and their memory while they do nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import REPOSITORY, process_fields
from benchmarks.measure import Benchmark, Samples, Size, at_most, scratch
from rmqclient.store import WorkerState, WorkerStatus, open_store
from rmqclient.store.runtime.worker_table import WorkerTable

APPLICATION = "benchmarks.starting.idle_app:app"
IMPORT = "import rmqclient"
TARGETS = {IMPORT: at_most(0.15), "ready": at_most(0.5), "resident": at_most(60)}

_IMPORT = "import time; begun = time.perf_counter(); import rmqclient; print(time.perf_counter() - begun)"
_LOOK_INTERVAL_S = 0.002
_LONGEST_WAIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Numbers of turns."""

    imports: int
    runs: int
    idle_s: float
    """Seconds that a worker is idle before its memory is read."""


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure the imports first and then the runs of `rmq run`."""
    samples.note("Modules were compiled before, as those of an installed package are.")
    samples.note(
        "Ready: from the start of `rmq run --processes 1` until the worker table says READY, in a store that exists "
        f"and is open in another process. Memory is what the kernel tells of a process {parameters.idle_s} s later as "
        "VmRSS, and of that what is its own and what files back; one page may be resident in several processes."
    )
    with scratch(directory) as compiled:
        environment = _environment(compiled)
        _import_s(environment)
        for _ in range(parameters.imports):
            samples.add("bare interpreter", "", "s", _interpreter_s(environment))
            samples.add(IMPORT, "", "s", _import_s(environment), TARGETS[IMPORT])
        with scratch(directory) as root:
            _measure_run(root, environment, 0, Samples())
        for _ in range(parameters.runs):
            with scratch(directory) as root:
                _measure_run(root, environment, parameters.idle_s, samples)


def _environment(compiled: Path) -> dict[str, str]:
    """Let children keep compiled modules in this directory, as an installed package keeps its own."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(compiled)}


def _interpreter_s(environment: Mapping[str, str]) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], env=environment, check=True)
    return time.perf_counter() - begun


def _import_s(environment: Mapping[str, str]) -> float:
    command = [sys.executable, "-c", _IMPORT]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def _measure_run(root: Path, environment: Mapping[str, str], idle_s: float, samples: Samples) -> None:
    with open_store(root, housekeeping=False) as store:
        table = store.workers()
        begun = time.perf_counter()
        with _supervisor(root, environment) as process:
            worker = _wait_until_ready(table, process)
            samples.add("worker ready", "", "s", time.perf_counter() - begun, TARGETS["ready"])
            time.sleep(idle_s)
            _add_memory(samples, process.pid, worker.pid)


@contextmanager
def _supervisor(root: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the idle application; its log goes to the store's directory."""
    command = [sys.executable, "-m", "rmqclient.workers", "run", APPLICATION, "--processes", "1", "--store", str(root)]
    with (root / "supervisor.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(_LONGEST_WAIT_S)


def _wait_until_ready(table: WorkerTable, supervisor: subprocess.Popen[bytes]) -> WorkerStatus:
    """Wait until the only worker is ready. Raises RuntimeError if the supervisor ends or it takes too long.

    The supervisor notes which process it is, perhaps after the worker has said that it is ready.
    """
    deadline = time.monotonic() + _LONGEST_WAIT_S
    while (status := table.status(0)).state is not WorkerState.READY or not status.pid:
        if supervisor.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("`rmq run` has no ready worker")
        time.sleep(_LOOK_INTERVAL_S)
    return status


def _add_memory(samples: Samples, supervisor: int, worker: int) -> None:
    fork_server = int(process_fields(worker)["PPid"])
    for case, pid in (("supervisor", supervisor), ("worker", worker), ("fork server", fork_server)):
        fields = {name: value.removesuffix(" kB") for name, value in process_fields(pid).items()}
        anonymous = int(fields["RssAnon"]) / 1024
        backed = (int(fields["RssFile"]) + int(fields["RssShmem"])) / 1024
        samples.add("resident memory", case, "MiB", int(fields["VmRSS"]) / 1024, TARGETS["resident"])
        samples.add("of it its own (RssAnon)", case, "MiB", anonymous)
        samples.add("of it backed by files (RssFile + RssShmem)", case, "MiB", backed)


BENCHMARK = Benchmark(
    name="start",
    title="Starting and idling",
    parameters={
        Size.FULL: Parameters(imports=10, runs=5, idle_s=2.0),
        Size.QUICK: Parameters(imports=3, runs=1, idle_s=1.0),
        Size.SMALLEST: Parameters(imports=1, runs=1, idle_s=0.0),
    },
    run=run,
)
