"""A process with the package imported that forks a child for the program of each page: an import is most of its cost.

``python -m tests.docs.programs`` answers each order with how the child ended. A child has the directory of its page,
warnings that are errors, and a ``__main__`` of its own, as if it had been started alone.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.docs.page import REPOSITORY
from tests.support.host.forking import ForkingProcess

LONG_S = 60

SAID = "said"
"""The file beside a program that has what it printed."""


class Programs(ForkingProcess):
    """Starts the process, lets it run programs, ends it. A context manager."""

    def __init__(self) -> None:
        super().__init__("tests.docs.programs")

    def run(self, program: Path, variables: Mapping[str, str] = MappingProxyType({})) -> tuple[int, str]:
        """Run a program in its own directory to its end; return its exit status and what it printed.

        ``variables`` are for its environment.
        """
        status = os.waitstatus_to_exitcode(int(self.ask(json.dumps([str(program), dict(variables)]))))
        return status, program.with_name(SAID).read_text(encoding="utf-8")


def main() -> None:
    """Fork a child for each line of standard input; a child returns from here, and so ends as any program does."""
    warnings.simplefilter("error")
    import rmqclient  # noqa: PLC0415 - a warning of an import is an error, too

    for name in rmqclient.__all__:
        getattr(rmqclient, name)
    os.environ["PYTHONPATH"] = str(REPOSITORY)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            program, variables = json.loads(line)
            return _run(Path(program), variables)
        print(os.waitpid(child, 0)[1], flush=True)
    return None


def _run(program: Path, variables: dict[str, str]) -> None:
    signal.alarm(LONG_S)
    os.environ.update(variables)
    os.chdir(program.parent)
    said = os.open(SAID, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(source, target)
    sys.path[0], sys.argv = str(program.parent), [program.name]
    runpy.run_path(program.name, run_name="__main__")


if __name__ == "__main__":
    main()
