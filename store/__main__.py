"""``python -m rmqclient.store``: look at a store directory without taking part in it, or repair it while nobody does.

Exit codes: 0 all is well, 2 the command line is wrong, 3 the store cannot be opened or read, or others have it open,
6 the check failed: damaged bytes, or an invariant that does not hold.
"""

from __future__ import annotations

import argparse
import signal
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import orjson

from rmqclient.store.errors import StoreError
from rmqclient.store.inspect.dump import dump, dump_file
from rmqclient.store.inspect.verify import Problem, verify
from rmqclient.store.repair import planned, repair

OK = 0
STORE_CANNOT_BE_OPENED = 3
CHECK_FAILED = 6

_READ_ONLY = "The store may be closed, open in other processes, or a RocketMQ 4.9 broker's. It is only read."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. ``arguments`` are those of the process by default."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "dump":
            return _dump(options.root)
        if options.command == "repair":
            return _repair(options.root, dry_run=options.dry_run)
        return _verify(options.root, options.output)
    except (StoreError, OSError) as error:
        _note(str(error))
        return STORE_CANNOT_BE_OPENED


def _dump(root: Path) -> int:
    code = OK
    read = dump_file if root.is_file() else dump
    for damage in read(root, sys.stdout.buffer):
        sys.stdout.flush()  # what was read before the damage stands before it, when both go to a terminal
        _note(damage)
        code = CHECK_FAILED
    sys.stdout.flush()
    return code


def _verify(root: Path, output: str) -> int:
    problems = verify(root)
    for problem in problems:
        print(_as_json(problem) if output == "jsonl" else str(problem))
    sys.stdout.flush()
    if not problems:
        return OK
    _note(f"check failed: {len(problems)} problem{'s' if len(problems) > 1 else ''} in {root}")
    return CHECK_FAILED


def _repair(root: Path, *, dry_run: bool) -> int:
    for line in planned(root):
        print(line, flush=True)
    if not dry_run:
        repair(root)
    return OK


def _as_json(problem: Problem) -> str:
    fields = {
        "invariant": problem.invariant,
        "path": str(problem.path),
        "position": problem.position,
        "reason": problem.reason,
    }
    return orjson.dumps(fields).decode()


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rmqclient.store", description="Look at a store directory, or repair it."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    dump_command = commands.add_parser("dump", help="print every record of the commit log, or what one file holds")
    _describe(
        dump_command,
        "Print every record of the commit log, in its order. Damaged bytes are reported on standard error and stepped "
        "over. ROOT can be one file of a store, too, whose header, entries and slots are then printed. "
        f"{_READ_ONLY}",
        failed="there are damaged bytes",
    )
    dump_command.add_argument(
        "-o", "--output", choices=["jsonl"], default="jsonl", help="one JSON object a line (the only format)"
    )
    verify_command = commands.add_parser("verify", help="check the numbered invariants")
    _describe(
        verify_command,
        "Check the numbered invariants of store/inspect/verify.py. Each problem is one line: number of the "
        f"invariant, file, byte, reason. {_READ_ONLY}",
        failed="an invariant does not hold",
    )
    verify_command.add_argument(
        "-o", "--output", choices=["text", "jsonl"], default="text", help="format of the problems (default: text)"
    )
    repair_command = commands.add_parser("repair", help="recover a store that nobody has open")
    _describe(
        repair_command,
        "Print what the next process that opens the store does to it, one step a line: cut a torn tail, step over "
        "what is damaged, write consume queues again. Then do it, under the lock of the store, and close the store.",
        in_use=", or others have it open",
    )
    repair_command.add_argument("--dry-run", action="store_true", help="print the steps and change nothing")
    return parser


def _describe(command: argparse.ArgumentParser, what: str, *, failed: str = "", in_use: str = "") -> None:
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.description = textwrap.fill(what, 80)
    command.epilog = (
        f"exit codes:\n  {OK}  all is well\n  2  the command line is wrong\n"
        f"  {STORE_CANNOT_BE_OPENED}  the store cannot be opened or read{in_use}"
    )
    if failed:
        command.epilog += f"\n  {CHECK_FAILED}  check failed: {failed}"
    command.add_argument("root", type=Path, metavar="ROOT", help="directory of the store")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it, without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main())
