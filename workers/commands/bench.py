"""``rmq bench``: how fast this host and this disk send and hand out messages, in a directory of its own."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import click

from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import DIRECTORY, with_output

_TOPIC = "bench"


@click.command()
@click.option("--messages", type=click.IntRange(min=1), default=100_000, show_default=True)
@click.option(
    "--size", type=click.IntRange(min=0, max=1 << 20), default=256, show_default=True, help="Bytes of a body."
)
@click.option("--directory", "root", type=DIRECTORY, help="A new one, on the disk to try.  [default: temporary]")
@with_output
def bench(messages: int, size: int, root: Path | None, out: Output) -> None:
    """Send messages one by one, then hand them to a handler in this process; show the rates.

    The directory must not exist, and is removed. The documentation has figures of an idle machine.
    """
    if root is not None and root.exists():
        raise click.UsageError(f"{root} exists: name a new directory, which is removed at the end")
    with tempfile.TemporaryDirectory(dir=None if root is None else root.parent) as directory:
        rows = measured(Path(directory) / "store", messages, bytes(size))
    out.write(rows)


def measured(root: Path, messages: int, body: bytes) -> list[dict[str, Any]]:
    """Return a row for sending and one for handling."""
    from rmqclient import App, Message, Producer
    from rmqclient.consuming.push_consumer import PushConsumer
    from rmqclient.opening import open_local_store

    left, finished = [messages], threading.Event()
    app = App(root)

    @app.handler(_TOPIC, group="bench")
    def count(message: Any) -> None:
        del message
        left[0] -= 1
        if not left[0]:
            finished.set()

    with open_local_store(root, "messages", create=True) as store:
        with Producer(store) as producer:
            message, begun = Message(_TOPIC, body), time.perf_counter()
            for _ in range(messages):
                producer.send(message)
            sent_s = time.perf_counter() - begun
        consumer, begun = PushConsumer(store, app.handlers), time.perf_counter()
        consumer.start()
        finished.wait()
        handled_s = time.perf_counter() - begun
        consumer.close()
    return [_row("send", messages, len(body), sent_s), _row("handle", messages, len(body), handled_s)]


def _row(what: str, messages: int, size: int, seconds: float) -> dict[str, Any]:
    return {
        "what": what,
        "messages": messages,
        "body_bytes": size,
        "seconds": round(seconds, 3),
        "messages_s": round(messages / seconds),
        "microseconds_each": round(seconds / messages * 1e6, 3),
    }
