"""``rmq doctor``: what could be wrong with this host and this store, and a bundle of it for a bug report."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import platform
import re
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.place import scheme_of, shown
from rmqclient.workers.commands.advice import Line, application, clock
from rmqclient.workers.commands.check import usual_limits
from rmqclient.workers.console import environment
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import refuse, with_output, with_store
from rmqclient.workers.console.tree import all_variables
from rmqclient.workers.exit_codes import ExitCode

if TYPE_CHECKING:
    from rmqclient import App
    from rmqclient.health.limits import Limits

_OF_DEVELOPERS = frozenset(("dev", "docs", "examples", "frameworks", "test"))
"""Extras for developers of the library."""
_WITHOUT_EXTRA = ("prometheus-client", "pydantic")
"""What the library uses if the application brings it."""
_TEXT_FILES = ("store.json", "config/topics.json", "config/consumerOffset.json", "config/subscriptionGroup.json")
_LEVELS = ("ok", "warn", "bad")
_LEAST_MAPS = 65_530


@click.command()
@click.option(
    "--bundle", type=click.Path(path_type=Path, dir_okay=False), help="Also write a .tar.gz for a bug report."
)
@click.option(
    "--with-bodies", is_flag=True, help="The bundle also has the last 100 messages of each topic, with bodies."
)
@click.option("-v", "--verbose", is_flag=True, help="Show what is well, too, each on its line.")
@click.option(
    "--app", "target", metavar="TARGET", help="Also compare an application, as `rmq run` takes it, with its store."
)
@with_store
@with_output
@click.pass_context
def doctor(
    context: click.Context,
    bundle: Path | None,
    with_bodies: bool,
    verbose: bool,
    target: str | None,
    root: Path | str,
    out: Output,
) -> None:
    """Check this host and the store for possible problems: ok, warn or bad, and what to do. Changes nothing.

    Problems come first; what is well is one line.

    The exit code is 1 when something is bad. A bundle has no message body and no key unless you ask for them.
    """
    if scheme_of(root):
        from rmqclient.errors import NotOnCluster

        raise NotOnCluster(f"{shown(root)} is a cluster: doctor looks at the directory of a store")
    if bundle is None:
        refuse(["with_bodies"], "without --bundle")
    from rmqclient.workers.loading import load_app

    app = None if target is None else load_app(target)
    top = context.find_root()
    limits = usual_limits(top)._replace(min_ready=0)  # a store need not have workers
    found = [*_directory(Path(root)), *_health(Path(root), app, limits), *_invariants(Path(root))]
    lines = sorted([*_host(), *_variables(top.command), *found], key=lambda line: -_LEVELS.index(line.level))
    rows = [line._asdict() for line in lines]
    if out.is_for_people:
        click.echo(_text(lines, verbose=verbose))
    else:
        out.write(rows)
    if bundle is not None:
        write_bundle(bundle, Path(root), rows, limits, with_bodies=with_bodies)
        click.echo(f"{bundle}: written{'' if with_bodies else ', without bodies and keys'}", err=True)
    if any(line.level == "bad" for line in lines):
        context.exit(ExitCode.FAILED)


def _text(lines: list[Line], *, verbose: bool) -> str:
    from rmqclient.health.report import broken, line, well
    from rmqclient.workers.console.terminal import columns

    shown = [line(*each) for each in lines if verbose or each.level != "ok"]
    if len(shown) < len(lines):
        shown.append(line("ok", well(each.subject.partition(" ")[0] for each in lines if each.level == "ok")))
    return "\n".join(broken(each, columns()) for each in shown)


def write_bundle(path: Path, root: Path, rows: list[dict[str, Any]], limits: Limits, *, with_bodies: bool) -> None:
    """Write what a bug report needs: findings, settings, offsets, names and sizes of files; bodies only if asked."""
    files = [
        f"{each.stat().st_size:>14} {each.relative_to(root)}" for each in sorted(root.rglob("*")) if each.is_file()
    ]
    parts = {
        "doctor.json": json.dumps(rows, indent=2),
        "files.txt": "\n".join(files),
        "health.json": _health_json(root, limits),
    }
    parts |= {name: (root / name).read_text("utf-8", "replace") for name in _TEXT_FILES if (root / name).is_file()}
    if with_bodies:
        parts["messages.jsonl"] = "\n".join(_last_messages(root))
    with tarfile.open(path, "w:gz") as archive:
        for name, text in parts.items():
            content = text.encode()
            info = tarfile.TarInfo(f"rmq-doctor/{name}")
            info.size, info.mode, info.mtime = len(content), 0o600, int(time.time())
            archive.addfile(info, io.BytesIO(content))


def _host() -> Iterator[Line]:
    yield Line(
        "ok", "versions", f"rmqclient {importlib.metadata.version('rmqclient')}, Python {platform.python_version()}"
    )
    yield Line("ok", "kernel", f"{platform.system()} {platform.release()} {platform.machine()}")
    found = [f"{name} {_version(name)}" for name in _optional() if _version(name)]
    yield Line("ok", "extras", ", ".join(found) or "none")
    maps = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    if maps < _LEAST_MAPS:
        yield Line(
            "warn", "vm.max_map_count", str(maps), f"raise it to {_LEAST_MAPS}: each file of a store is a mapping"
        )
    else:
        yield Line("ok", "vm.max_map_count", str(maps))


def _optional() -> list[str]:
    """Return the packages that the library uses where they are installed, by its own metadata."""
    required = importlib.metadata.requires("rmqclient") or []
    found = [re.match(r"([\w.-]+).*\bextra == [\"']([\w-]+)", each) for each in required]
    names = {each[1] for each in found if each is not None and each[2] not in _OF_DEVELOPERS}
    return sorted({*names, *_WITHOUT_EXTRA})


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _variables(tree: click.Command) -> Iterator[Line]:
    known = all_variables(tree)
    known |= {environment.STORE, environment.CONFIG, environment.STATE}
    for name in sorted(os.environ):
        if name.startswith(f"{environment.PREFIX}_") and name not in known:
            near = environment.nearest(name, known)
            hint = f"is {near} meant?" if near else "see `rmq config --all`"
            yield Line("warn", "variable", name, f"no option reads it: {hint}")


def _directory(root: Path) -> Iterator[Line]:
    from rmqclient.store.files.sharing import is_shared

    if not root.is_dir():
        yield Line("bad", "directory", f"{root} is not there", "the first producer or worker makes it")
        return
    mode = root.stat().st_mode & 0o777
    if mode & 0o022 and not is_shared(root.stat()):
        yield Line("warn", "mode", f"{mode:o}", "others may write here, and so send and handle messages: chmod 700")
    elif is_shared(root.stat()):
        yield Line("ok", "mode", f"{mode:o}, shared with group {root.stat().st_gid}")
    else:
        yield Line("ok", "mode", f"{mode:o}")
    status = os.statvfs(root)
    yield Line("ok", "free", f"{status.f_bavail * status.f_frsize / 2**30:,.1f} GiB")


def _health(root: Path, app: App | None, limits: Limits) -> Iterator[Line]:
    from rmqclient.health import findings
    from rmqclient.store.observe.reading import Reading
    from rmqclient.store.observe.shared_file import Unreadable

    try:
        with Reading(str(root)) as reading:
            found, queues = findings.look(reading, limits), reading.queues()
            beside = [clock(reading, queues), *(application(app, queues) if app is not None else ())]
    except Unreadable as error:
        yield Line("bad", "runtime", str(error), "open it once with a producer or `rmq run`")
        return
    for each in found:
        yield Line((*_LEVELS, "warn")[each.level], f"{each.check} {each.subject}".rstrip(), each.state, each.remedy)
    yield from beside


def _invariants(root: Path) -> Iterator[Line]:
    from rmqclient.errors import StoreError
    from rmqclient.store.inspect.verify import verify

    try:
        problems = verify(root)
    except (StoreError, OSError) as error:
        yield Line("bad", "files", str(error), "run `rmq store verify`")
        return
    for problem in problems[:10]:
        yield Line("bad", "files", str(problem), "`rmq store repair --dry-run` shows what an opening would do")
    if not problems:
        yield Line("ok", "files", "every invariant holds")


def _health_json(root: Path, limits: Limits) -> str:
    from rmqclient.health import findings, report
    from rmqclient.store.observe.reading import Reading
    from rmqclient.store.observe.shared_file import Unreadable

    try:
        with Reading(str(root)) as reading:
            return report.as_json(findings.look(reading, limits))
    except Unreadable as error:
        return json.dumps({"error": str(error)})


def _last_messages(root: Path) -> Iterator[str]:
    from rmqclient.consuming.reader import Reader
    from rmqclient.workers.console import status
    from rmqclient.workers.console.opening import opened_backend
    from rmqclient.workers.console.output import to_json

    with opened_backend(root) as backend:
        for topic in backend.topics.names():
            for message in Reader(backend).tail(topic, start="-100", follow=False):
                yield to_json(status.message_row(message))
