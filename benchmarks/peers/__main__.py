"""The command ``python -m benchmarks.peers``, which ``make bench-peers`` runs."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.measure import Size, working_directory
from benchmarks.peers import page
from benchmarks.peers.everybody import EVERYBODY
from benchmarks.peers.frameworks.framework import Framework
from benchmarks.peers.peer import Peer
from benchmarks.peers.result import RESULT, read, write
from benchmarks.peers.run import TURNS, run, to_stderr

_FILE = click.Path(dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.option("--only", default="", help="Names with commas between; ours are always among them.  [default: all]")
@click.option(
    "--quick", is_flag=True, help="Some seconds for each; as with --only, page and result go beside those of full runs."
)
@click.option("--turns", type=click.IntRange(1), help="How often each is measured.  [default: 2, with --quick 1]")
@click.option("--render", is_flag=True, help="Measure nothing: write the page from the last result.")
@click.option("--directory", type=_DIRECTORY, help="Work in it.  [default: a temporary one, on a disk]")
@click.option("--result", type=_FILE, default=RESULT, help="Where the result is.  [default: with the code]")
@click.option("--page", "target", type=_FILE, help="What is written.  [default: docs/results/peers.md, of full runs]")
@click.option("--list", "listed", is_flag=True, help="Print the names.")
def main(
    *,
    only: str,
    quick: bool,
    turns: int | None,
    render: bool,
    directory: Path | None,
    result: Path,
    target: Path | None,
    listed: bool,
) -> None:
    """Measure us beside the peers, in turns, and write the page."""
    if listed:
        click.echo("\n".join(f"{each.name:24}{each.title}" for each in EVERYBODY))
        return
    partial = quick or bool(only)
    if partial:
        result = result.parent / "quick" / result.name
    if not render:
        size = Size.QUICK if quick else Size.FULL
        with working_directory(directory) as path:
            write(run(_chosen(only), size, turns or TURNS[size], Path(path), to_stderr), result)
    page.write(read(result), target or (result.with_suffix(".md") if partial else page.PAGE))


def _chosen(only: str) -> list[Peer | Framework]:
    """Return ours and the named. Raises BadParameter for a name that there is not."""
    if not only:
        return list(EVERYBODY)
    names = {name.strip() for name in only.split(",")}
    if unknown := names - {each.name for each in EVERYBODY} - {each.name.partition("-")[0] for each in EVERYBODY}:
        raise click.BadParameter(f"there is no peer {', '.join(sorted(unknown))}: --list names them")
    return [each for each in EVERYBODY if each.ours or each.name in names or each.name.partition("-")[0] in names]


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.peers")
