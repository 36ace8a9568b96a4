"""Handlers of every kind, each of which sends what it got to the topic ``done``."""

from __future__ import annotations

from rmqclient import App, Batch, Message, Producer, RetryPolicy
from rmqclient.message import ReceivedMessage

app = App()
_TWICE = RetryPolicy(max_retries=2, delays=(10.0, 60.0))


def note(by: str, message: ReceivedMessage, *, fails_before: int = 0) -> None:
    """Send what a handler got; fail in the first attempts."""
    with Producer(app.root) as producer:
        producer.send(Message("done", {"by": by, "body": message.body.decode(), "attempt": message.delivery_attempt}))
    if message.delivery_attempt <= fails_before:
        raise ValueError(f"not in attempt {message.delivery_attempt}")


@app.handler("plain", group="plain", tags="wanted", retry=_TWICE)
def plain(message: ReceivedMessage) -> None:
    note("plain", message)


@app.handler("flaky", group="flaky", retry=_TWICE, threads=2)
def flaky(message: ReceivedMessage) -> None:
    note("flaky", message, fails_before=2 if message.body == b"late" else 9 if message.body == b"never" else 0)


@app.handler("waiting", group="waiting", retry=_TWICE)
async def waiting(message: ReceivedMessage) -> None:
    note("waiting", message, fails_before=1)


@app.handler("ordered", group="ordered", order="queue")
def ordered(message: ReceivedMessage) -> None:
    note("ordered", message, fails_before=2 if message.body == b"first" else 0)


@app.handler("keyed", group="keyed", order="key", threads=2)
def keyed(message: ReceivedMessage) -> None:
    note("keyed", message, fails_before=1 if message.body == b"a1" else 0)


@app.handler("many", group="many", batch=Batch(3, linger=30.0))
def many(messages: list[ReceivedMessage]) -> None:
    with Producer(app.root) as producer:
        producer.send(Message("done", {"by": "many", "bodies": sorted(each.body.decode() for each in messages)}))


@app.handler("asked", group="asked", replies=True)
def asked(message: ReceivedMessage) -> str:
    return message.body.decode() * 2


@app.handler("ticks", group="ticks")
def ticks(message: ReceivedMessage) -> None:
    note("ticks", message)


@app.schedule(every=60, topic="ticks", misfire_grace=120, coalesce=False)
def tick() -> str:
    return "tick"
