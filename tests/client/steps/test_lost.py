"""Lost results: a disk so full that files go before their time may take some along, and then no step runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Literal

import pytest

from rmqclient import App, ReceivedMessage, RetryPolicy
from rmqclient.errors import StepsLost
from rmqclient.failures.dead_letters import Selection, replay
from rmqclient.testing import Kit
from tests.client.steps.test_pauses import ONCE, SHORT

Rmq = Callable[..., Kit]


def send_others(kit: Kit) -> None:
    """Let more stand behind all messages than one file of the log takes."""
    for _ in range(5):
        kit.send("others", b"x" * (1 << 14))


def fill_disk(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk be so full that each file but the last goes before its time."""
    store = kit._store
    store.flusher.flush_thorough()
    with monkeypatch.context() as patched:
        full = SimpleNamespace(usage=lambda: SimpleNamespace(used_percent=92.0))
        patched.setattr(store.retention._candidates, "_disk", full)
        assert store.retention.clean()
    assert store.state.min_offset > 0


@pytest.mark.guarantee("G63", "G66")
def test_results_that_a_full_disk_took_along_are_an_error_when_a_failed_message_comes_again(
    rmq: Rmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a message that failed behind its step, and other messages between the two
    app, ran = App(), list[str]()

    @app.handler("orders", group="billing", retry=RetryPolicy(max_retries=1))
    def bill(message: ReceivedMessage) -> None:
        message.steps("charge", ran.append, "charge")
        if message.delivery_attempt == 1:
            send_others(kit)
            raise ConnectionError

    kit = rmq(app, config=SHORT)
    kit.send("orders")
    kit.drain(raises=False)

    # When the disk gets full
    fill_disk(kit, monkeypatch)

    # Then its step does not run again
    kit.advance(minutes=1)
    with pytest.raises(StepsLost, match="had 1 stored steps, and the store has 0 of them"):
        kit.drain()
    assert ran == ["charge"]


@pytest.mark.guarantee("G63", "G66")
@pytest.mark.parametrize("order", [None, "queue", "key"], ids=["without order", "of queues", "of keys"])
def test_results_that_a_full_disk_took_along_are_an_error_when_a_dead_letter_is_replayed(
    rmq: Rmq, monkeypatch: pytest.MonkeyPatch, order: Literal["queue", "key"] | None
) -> None:
    # Given a dead letter that failed behind its step
    app, ran = App(), list[str]()

    @app.handler("orders", group="billing", order=order, retry=ONCE)
    def bill(message: ReceivedMessage) -> None:
        message.steps("charge", ran.append, "charge")
        send_others(kit)
        raise ConnectionError

    kit = rmq(app, config=SHORT)
    kit.send("orders")
    kit.drain(raises=False)
    fill_disk(kit, monkeypatch)

    # When it is sent again, Then its step does not run again
    assert len(list(replay(kit.producer._backend, "billing", Selection()))) == 1
    with pytest.raises(StepsLost, match="had 1 stored steps, and the store has 0 of them"):
        kit.drain()
    assert ran == ["charge"]


@pytest.mark.guarantee("G63", "G66")
def test_signals_do_not_stand_in_for_results_that_a_full_disk_took_along(
    rmq: Rmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a message that waits behind its step, whose result a full disk took along
    app, ran = App(), list[str]()

    @app.handler("orders", group="billing", retry=ONCE)
    def bill(message: ReceivedMessage) -> None:
        message.steps("charge", ran.append, "charge")
        message.steps.wait_for("approved", timeout=timedelta(hours=5))

    kit = rmq(app, config=SHORT)
    sent = kit.send("orders")
    kit.drain()
    send_others(kit)
    fill_disk(kit, monkeypatch)

    # When as many signals come as records are gone
    kit.producer.signal(sent.message_id, "packed", group="billing")
    assert kit.producer.signal(sent.message_id, "approved", group="billing")

    # Then its step does not run again
    with pytest.raises(StepsLost, match="had 2 stored steps, and the store has 0 of them"):
        kit.drain()
    assert ran == ["charge"]
