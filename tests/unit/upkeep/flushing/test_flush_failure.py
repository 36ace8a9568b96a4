"""A flush that fails: no send is acknowledged after it, in any process."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.errors import StorePoisoned
from rmqclient.store.recovery.recovery import ABORT
from tests.support.oracle import reference
from tests.support.stores import SMALL
from tests.unit.upkeep.flushing.flushed import SYNC, Disk, producer_of, queue_of, started


@pytest.mark.guarantee("G2")
def test_the_first_failed_flush_is_the_last_one_for_every_process(
    store: MessageStore, other: MessageStore, disk: Disk
) -> None:
    # Given a flush that fails
    producer_of(store).send(Message("t", b"good"))
    disk.fail_at = len(disk.flushes) + 1
    with pytest.raises(StorePoisoned, match="the disk is broken") as raised:
        producer_of(store).send(Message("t", b"unknown"))
    assert raised.value.stored

    # Then no append and no flush is believed any more, although the disk works again
    flushes = len(disk.flushes)
    flushed_to, published_to = store.state.flushed_to, store.state.published_to
    for handle in (store, other):
        with pytest.raises(StorePoisoned, match="errno 5"):
            producer_of(handle).send(Message("t", b"refused"))
        with pytest.raises(StorePoisoned, match="errno 5"):
            producer_of(handle, SMALL).send(Message("t", b"refused"))
        with pytest.raises(StorePoisoned, match="errno 5"):
            handle.flusher.wait_until_flushed(published_to)
        with pytest.raises(StorePoisoned):
            handle.flusher.flush_thorough()
    assert len(disk.flushes) == flushes
    assert (store.state.flushed_to, store.state.published_to) == (flushed_to, published_to)

    # And what is stored can still be read
    assert len(queue_of(store)) == 2

    # And the store is not left as if it had been closed; the next opening recovers it
    store.close()
    other.close()
    assert (store.root / ABORT).exists()
    disk.fail_at = None
    with open_store(store.root, housekeeping=False) as again:
        producer_of(again).send(Message("t", b"after"))
    assert [record.body for _, record in reference.read_commit_log(store.root)] == [b"good", b"unknown", b"after"]
    assert reference.check_store(store.root) == []


@pytest.mark.guarantee("G2")
def test_a_sleeping_follower_is_told_of_the_failure(store: MessageStore, other: MessageStore, disk: Disk) -> None:
    disk.may_leave = threading.Semaphore(0)
    disk.fail_at = 2
    raised: list[str] = []

    def send(handle: MessageStore) -> None:
        try:
            producer_of(handle).send(Message("t", b""))
        except StorePoisoned as error:
            raised.append(str(error))

    threads = [started(lambda: send(store))]
    assert disk.entered.acquire(timeout=60)
    threads += [started(lambda: send(other)) for _ in range(3)]
    while len(queue_of(store)) < 4:
        pass
    disk.may_leave.release()  # the first call, for the file, works; the second one, for its name, does not
    for thread in threads:
        thread.join(60)
    assert len(raised) == 4


@pytest.mark.parametrize("number", range(1, 12))
def test_whichever_flush_fails_no_send_is_acknowledged_after_it(tmp_path: Path, disk: Disk, number: int) -> None:
    disk.fail_at = number
    acknowledged = []
    failed = False
    store = open_store(tmp_path / "another", SYNC, housekeeping=False)
    producer = producer_of(store)
    for count in range(60):
        try:
            acknowledged.append(producer.send(Message("t", bytes(2_000))).commit_log_end)
            assert not failed
            if count % 5 == 0:
                store.flusher.flush_thorough()
        except StorePoisoned:
            failed = True
    assert failed
    assert store.state.poisoned == errno.EIO
    assert store.state.flushed_to >= max(acknowledged, default=0)
    store.close()
