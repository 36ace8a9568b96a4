"""``rmq cheat``: the commands that people look for, by what they want; and the examples at the end of each help."""

from __future__ import annotations

import click

from rmqclient.workers.console.tree import leaves

EXAMPLES: dict[str, tuple[str, ...]] = {
    "bench": ("rmq bench --messages 100000", "rmq bench --directory /mnt/disk/try --size 1000 -o json"),
    "cheat": ("rmq cheat", "rmq cheat group"),
    "check": (
        "rmq check --store ./store",
        "rmq check ready --min-ready 4",
        "rmq check live",
        "rmq check --group billing --warn 1000 --crit 10000 --age-warn 1m -o nagios",
        "rmq check -o prometheus > rmq.prom.new && mv rmq.prom.new rmq.prom",
    ),
    "completion": ('eval "$(rmq completion bash)"', "rmq completion fish > ~/.config/fish/completions/rmq.fish"),
    "config": ("rmq config", "rmq config run --all"),
    "dashboard": (
        "rmq dashboard ./store",
        "rmq dashboard ./store --allow-actions --listen 127.0.0.1:0",
        "ssh -L 8650:127.0.0.1:8650 server rmq dashboard /var/lib/shop/store",
    ),
    "dlq export": (
        "rmq dlq export billing letters.jsonl",
        "rmq dlq export billing --since 1h | rmq send orders --jsonl -",
    ),
    "dlq ls": ("rmq dlq ls", "rmq dlq ls billing --since 1h --error TimeoutError"),
    "dev": ("rmq dev shop:app", "rmq dev shop.py:app --wipe", "rmq dev shop:app --watch settings.toml"),
    "dlq purge": ("rmq dlq purge billing --key 7 --dry-run", "rmq dlq purge billing --yes"),
    "dlq replay": ("rmq dlq replay billing --dry-run", "rmq dlq replay billing --topic orders --rate 100"),
    "dlq show": ("rmq dlq show billing 7F0000011A2B00000000000000000001",),
    "events": ("rmq events --since 2h", "rmq events --since 14:05", "rmq events --kind pause --kind resume -o json"),
    "doctor": ("rmq doctor", "rmq doctor --bundle report.tar.gz"),
    "group assignment": ("rmq group assignment billing",),
    "group clone": ("rmq group clone billing billing-new --dry-run", "rmq group clone billing audit --topic orders"),
    "group info": ("rmq group info billing",),
    "group lag": ("rmq group lag billing", "rmq group lag billing -o jsonl > places"),
    "group ls": ("rmq group ls", "rmq group ls --since 1h", "rmq group ls -o json --query '[?lag > `1000`].group'"),
    "group pause": ("rmq group pause billing", "rmq group pause billing orders --queue 2"),
    "group resume": ("rmq group resume billing",),
    "group rm": ("rmq group rm billing --dry-run", "rmq group rm billing --yes -o jsonl > places"),
    "group seek": (
        "rmq group seek billing orders --to 2h --dry-run",
        "rmq group seek billing orders --shift -100",
        "rmq group seek billing --to-file places",
    ),
    "message decode": ("rmq msg decode 7F0000011A2B00000000000000000001",),
    "message find": ("rmq msg find orders A-17 --since 2h",),
    "message get": ("rmq msg get 7F0000011A2B00000000000000000001", "rmq msg get 2:7731 --topic orders"),
    "message signal": ("rmq msg signal 7F00000100002A9F00000000000004D2 approved true --group billing",),
    "message trace": ("rmq msg trace 2:7731 --topic orders",),
    "metrics": (
        "rmq metrics",
        "rmq metrics --output /var/lib/node_exporter/rmq.prom",
        "rmq metrics --listen 127.0.0.1:5558",
    ),
    "pipeline aggregate": ("rmq pipeline aggregate orders --window '1 hour'",),
    "pipeline archive": ("rmq pipeline archive orders --to /data/orders",),
    "pipeline audit": ("rmq pipeline audit orders",),
    "pipeline backfill": ("rmq pipeline backfill orders --to orders-again --name once",),
    "pipeline compact": ("rmq pipeline compact prices --to /data/prices",),
    "pipeline dead-letters": ("rmq pipeline dead-letters billing",),
    "replica follow": ("rmq replica follow 10.0.0.7:10912 --store ./replica",),
    "replica promote": ("rmq replica promote --store ./replica",),
    "replica status": ("rmq replica status --store ./replica",),
    "replica rejoin": ("rmq replica rejoin db8:10912 --store ./store",),
    "run": ("rmq run shop:app --processes 4", "rmq run shop.py:app --group billing"),
    "schedule cancel": ("rmq schedule cancel 7F0000011A2B00000000000000000001",),
    "schedule crons": ("rmq schedule crons shop:app",),
    "schedule ls": ("rmq schedule ls --topic reminders",),
    "send": (
        "rmq send orders '{\"id\": 7}' --tags paid --key 7",
        "rmq send orders --lines orders.txt --rate 100",
        "rmq tail orders --from earliest --no-follow -o jsonl | rmq send copies --jsonl -",
    ),
    "serve": ("rmq serve ./store", "rmq serve ./store --listen 0.0.0.0:9876 --acl keys.json"),
    "sql": (
        "rmq sql 'SELECT tags, count(*) FROM orders GROUP BY tags'",
        "rmq sql 'SELECT key, decode(value) FROM \"%DLQ%billing\"' -o jsonl",
        "rmq sql 'SELECT count(*) FROM orders' --archive s3://bucket/path",
    ),
    "store archive": ("rmq store archive --to s3://bucket/path",),
    "store broker-conf": ("rmq store broker-conf ./store > broker.conf",),
    "store clean": ("rmq store clean --reserved-hours 24",),
    "store dump": ("rmq store dump ./store | head",),
    "store repair": ("rmq store repair ./store --dry-run",),
    "store verify": ("rmq store verify ./store",),
    "tail": (
        "rmq tail orders --from -10",
        "rmq tail orders mails --tags 'paid || refunded' --where 'total > 100'",
        "rmq tail orders --from earliest --no-follow --format '%p:%o %k %b\\n'",
    ),
    "top": ("rmq top", "rmq top --once -o json", "rmq top --since 1h"),
    "topic create": ("rmq topic create orders --queues 8", "rmq topic create prices --cleanup-policy compact"),
    "topic info": ("rmq topic info orders",),
    "topic ls": ("rmq topic ls", "rmq topic ls -o csv"),
    "topic rm": ("rmq topic rm orders --yes",),
    "topic table": ("rmq topic table prices --key AAPL",),
    "topic update": ("rmq topic update orders --queues 16",),
    "tx commit": ("rmq tx commit 7F0000011A2B00000000000000000001",),
    "tx ls": ("rmq tx ls --group checkout",),
    "tx rollback": ("rmq tx rollback 7F0000011A2B00000000000000000001",),
    "worker ls": ("rmq worker ls",),
    "worker restart": ("rmq worker restart 4711", "rmq worker restart --all"),
    "worker scale": ("rmq worker scale 8",),
    "worker stack": ("rmq worker stack 4711", "rmq worker stack 4711 --all"),
}
"""By the words of a command."""

_WANTED: dict[str, tuple[tuple[str, str], ...]] = {
    "health": (
        ("what is wrong, and what to do", "rmq check"),
        ("watch it", "rmq top"),
        ("watch it in a browser", "rmq dashboard"),
        ("what could be wrong with this host", "rmq doctor"),
        ("how far is each group behind", "rmq group ls"),
        ("which queue is stuck, and why", "rmq group lag billing"),
        ("what do the workers run", "rmq worker ls"),
    ),
    "messages": (
        ("find one by its key", "rmq msg find orders A-17"),
        ("what happened to it", "rmq msg trace ID"),
        ("the last ten", "rmq tail orders --from -10 --no-follow"),
        ("send one", "rmq send orders hello"),
        ("copy a topic", "rmq tail a --from earliest --no-follow -o jsonl | rmq send b --jsonl -"),
    ),
    "group": (
        ("deliver the last two hours again", "rmq group seek billing orders --to 2h --dry-run"),
        ("skip everything that waits", "rmq group seek billing orders --to latest"),
        ("a new group where another one stands", "rmq group clone billing billing-new"),
        ("stop and go on", "rmq group pause billing; rmq group resume billing"),
    ),
    "failures": (
        ("which messages failed for good", "rmq dlq ls"),
        ("why", "rmq dlq show billing ID"),
        ("again, once the handler is mended", "rmq dlq replay billing --dry-run"),
        ("never again", "rmq dlq purge billing"),
    ),
    "store": (
        ("is every byte as it should be", "rmq store verify ./store"),
        ("what would an opening repair", "rmq store repair ./store --dry-run"),
        ("make room", "rmq store clean --reserved-hours 24"),
    ),
}


@click.command()
@click.argument("subject", type=click.Choice(list(_WANTED)), required=False)
def cheat(subject: str | None) -> None:
    """Show tasks, each with its command, of SUBJECT or of all."""
    for name, lines in _WANTED.items():
        if subject in (None, name):
            click.echo(f"{name}\n" + "\n".join(f"  {wanted:<40} {command}" for wanted, command in lines))


def add_examples(command: click.Command, words: tuple[str, ...]) -> None:
    """Put examples at the end of the help of a command; a noun has the first one of each of its commands."""
    lines = EXAMPLES.get(" ".join(words), ())
    if isinstance(command, click.Group):
        lines = tuple(EXAMPLES[" ".join(leaf)][0] for leaf, _ in leaves(command, words) if " ".join(leaf) in EXAMPLES)
    if lines:
        examples = "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
        command.epilog = f"{command.epilog}\n\n{examples}" if command.epilog else examples
