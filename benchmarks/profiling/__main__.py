"""The command ``python -m benchmarks.profiling``: a profile of the work behind each target, and their page."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from benchmarks.machine import REPOSITORY, commit, this_machine
from benchmarks.measure import scratch, working_directory
from benchmarks.profiling.page import Profiles, page
from benchmarks.profiling.recording import record, why_not
from benchmarks.profiling.works import WORKS

PAGE = REPOSITORY / "docs" / "results" / "profiles.md"
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(WORKS)), metavar="[NAME]...")
@click.option("--count", type=click.IntRange(1), help="Messages of each work.  [default: some seconds of them]")
@click.option("--page", "target", type=_FILE, help="What is written.  [default: docs/results/profiles.md]")
def main(names: tuple[str, ...], *, count: int | None, target: Path | None) -> None:
    """Profile the named works, or all, and write the page. With names or a count, it is printed if none is given."""
    if reason := why_not():
        raise click.ClickException(reason)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    with working_directory(None) as path:
        machine, profiles = this_machine(Path(path)), []
        for name in names or WORKS:
            with scratch(Path(path)) as directory:
                profiles.append(record(name, WORKS[name], count or WORKS[name].count, directory))
    found = Profiles(date=date, commit=commit(), machine=machine, profiles=profiles)
    if target is None and (names or count):
        click.echo(page(found), nl=False)
    else:
        (target or PAGE).write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.profiling")
