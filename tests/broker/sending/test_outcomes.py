"""Outcomes: what a client is told when its message cannot be stored now."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import RetentionConfig, StoreConfig
from tests.broker.asking import Asking, asking
from tests.broker.sending.sends import messages, read, send_of

LONGEST_S = 20.0


def every_way(client: Asking) -> list[Frame]:
    """Send a message and a batch; return the answers."""
    batch = (22 + 3).to_bytes(4, "big") + bytes(12) + (3).to_bytes(4, "big") + b"one" + bytes(2)
    return [
        client.ask_frame(send_of()),
        client.ask_frame(send_of(batch, "", code=RequestCode.SEND_BATCH_MESSAGE, batch=True)),
    ]


def test_a_full_disk_is_a_service_that_is_not_available(tmp_path: Path) -> None:
    most = StoreConfig(retention=RetentionConfig(disk_reserve_bytes=1 << 62))
    with asking(tmp_path, most) as client:
        client.broker.store.disk.look()
        for answer in every_way(client):
            assert answer.code == 14
            assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
            assert "disk_reserve_bytes" in (answer.remark or "")
        assert messages(client, "orders") == []


def test_a_store_whose_flush_failed_takes_nothing(client: Asking) -> None:
    read(client, client.ask_frame(send_of()))
    client.broker.store.state.poisoned = 5
    for answer in every_way(client):
        assert answer.code == 14
        assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert "service not available now" in (answer.remark or "")
    assert len(messages(client, "orders")) == 1


@contextmanager
def lock_kept(client: Asking) -> Iterator[None]:
    """Keep the append lock, as a process does that is stopped in the middle of an append."""
    state = client.broker.store.state
    taken, let_go = threading.Event(), threading.Event()

    def keep() -> None:
        with state.locked(state.append_mutex, 1_000):
            taken.set()
            let_go.wait(LONGEST_S)

    thread = threading.Thread(target=keep)
    thread.start()
    assert taken.wait(LONGEST_S)
    try:
        yield
    finally:
        let_go.set()
        thread.join()


def test_a_lock_that_somebody_keeps_is_a_busy_system(client: Asking) -> None:
    read(client, client.ask_frame(send_of()))
    with lock_kept(client):
        answer = client.ask_frame(send_of())
        assert answer.code == 2
        assert (answer.remark or "").startswith("[PC_SYNCHRONIZED]broker busy")
        begin = time.monotonic()
        again = [answer for _ in range(20) for answer in every_way(client)]
        assert {each.code for each in again} == {2}
        assert time.monotonic() - begin < 20.0  # each would wait a second
    assert client.ask_frame(send_of()).code == 0
    assert len(messages(client, "orders")) == 2
