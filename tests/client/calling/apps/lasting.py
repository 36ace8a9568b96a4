"""An application with a lifespan in each worker; ``FAIL`` names what raises."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rmqclient import App, HandlerCall, ReceivedMessage

app = App()
pool: list[int] = []


class Silent(Exception):
    """An error that ends the worker that asks what it is."""

    def __str__(self) -> str:
        raise SystemExit("no text")


def record(what: str) -> None:
    with Path(os.environ["RECORD"]).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {what}\n")


@app.lifespan
def made() -> Iterator[None]:
    pool.append(os.getpid())
    if Path("fail-at-start").exists():
        raise ConnectionError("no database")
    yield
    record("pool closed")
    if Path("fail-at-end").exists():
        raise ConnectionError("it has gone")
    if Path("fail-without-words").exists():
        raise Silent


@app.middleware
def surrounded(call: HandlerCall) -> Iterator[None]:
    yield
    record(f"surrounded {call.handler.group}")


@app.handler("orders", group="billing")
def handle(message: ReceivedMessage) -> None:
    assert pool == [os.getpid()], "made in this process"
    record("handled")
