"""Simulate a group on a cluster, and write the page of all sizes that were simulated."""

from __future__ import annotations

import click

from benchmarks.scaling import page
from benchmarks.scaling.scenarios import Group

STRATEGIES = ("averaged", "circle", "hash")


@click.command()
@click.option("--brokers", type=click.IntRange(1), default=100, show_default=True)
@click.option("--members", type=click.IntRange(2), default=1000, show_default=True)
@click.option("--queues", type=click.IntRange(1), default=10_000, show_default=True, help="Of all brokers together.")
@click.option("--strategy", type=click.Choice(STRATEGIES), default="averaged", show_default=True)
@click.option(
    "--waves", type=click.IntRange(1), default=60, show_default=True, help="In which members start, a second apart."
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--keep", is_flag=True, help="Keep the result for the page, and write the page.")
def main(brokers: int, members: int, queues: int, strategy: str, *, waves: int, seed: int, keep: bool) -> None:
    """Simulate one group with one topic, and show how long it takes to settle after each change."""
    run = simulated(brokers, members, queues, strategy, waves, seed)
    click.echo(page.written([run]))
    if keep:
        page.store(run)
        page.write()


def simulated(brokers: int, members: int, queues: int, strategy: str, waves: int, seed: int) -> page.Run:
    """Let everything happen to a group, one after the other."""
    group = Group(brokers, members, queues, strategy, seed)
    started = group.start(waves)
    outcomes = started, group.join(), group.stop(), group.die(), group.restart(), group.lose_broker()
    return page.Run(
        brokers=brokers,
        members=members,
        queues=queues,
        strategy=strategy,
        compute_ms=group.compute_s * 1000,
        renewals=group.renewals,
        outcomes=outcomes,
    )


if __name__ == "__main__":
    main()
