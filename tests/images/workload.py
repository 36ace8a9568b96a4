"""One life of a small store, recorded: it is opened, used in every way, closed or killed and opened again.

All in one process and one thread, so that a seed repeats it: no housekeeper, whose work is done here by hand, and no
preparer. A process that is killed in the middle of an append is a forked child.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

from rmqclient.store import Message, MessageStore, SendResult, StoreConfig, TagSet, crash_points, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.kernel._kernel import Appender, QueueGrant
from tests.images.ledger import Ledger, Sent, body_of
from tests.images.recorder import Recorder
from tests.images.timeline import Steps

CONFIG = StoreConfig(
    commit_log_file_bytes=36_864,
    max_body_bytes=2_048,
    consume_queue_file_entries=32,
    index_slots=40,
    index_entries=60,
    lock_timeout_ms=2_000,
)
"""Nine pages of log a file; 640 bytes of entries, a sector and a part of one; an index of three sectors."""

TOPICS = {"orders": 2, "payments": 1, "audit": 2}
GROUP = "billing"
TAGS = (None, "new", "paid")
KEYS = ((), ("k1",), ("k2",), ("k1", "k3"))

_OPENING = (CrashPoint.RECOVERY_PLANNED, CrashPoint.RECOVERY_TAIL_CUT, CrashPoint.RECOVERY_APPLIED)
_APPENDING = tuple(point for point in CrashPoint if point <= CrashPoint.APPEND_FINISHED)
_KILLED = tuple(point for point in _APPENDING if CrashPoint.APPEND_ANNOUNCED <= point <= CrashPoint.QUEUE_PUBLISHED)
_SPAN = 2_000


class Life:
    """A life: ``opened_at`` is the moment at which the first opening had returned."""

    def __init__(self, root: Path, ledger: Ledger, chance: random.Random, *, sizes: tuple[int, ...]) -> None:
        self.root = root
        self.ledger = ledger
        self.recorder = Recorder(root, self._watch)
        self.opened_at = 0
        self._chance = chance
        self._sizes = sizes
        self._store: MessageStore | None = None
        self._appender: Appender | None = None
        self._grants: dict[tuple[str, int], QueueGrant] = {}

    def live(self, operations: int) -> None:
        """Open the store and do so many things with it."""
        with self.recorder.recording():
            self._open()
            self.opened_at = self.recorder.timeline.moment
            for _ in range(operations):
                self._chance.choices(list(OPERATIONS), list(OPERATIONS.values()))[0](self)
                self.recorder.disarm()
                self._returned()
            self._abandon()

    # --- what it does -----------------------------------------------------------------------------

    def send(self) -> None:
        """Send one message, and wait for its flush now and then."""
        self._arm(_APPENDING)
        message = self._message(self._topic())
        result = self._appending().append(message, str(self._chance.randrange(9)))
        self.ledger.learn(self._moment(), self._log())
        self.ledger.acknowledge([result])
        if self._chance.random() < 0.2:
            self._arm((CrashPoint.FLUSH_SYNCED,))
            self._open_store.flusher.wait_until_flushed(result.commit_log_end)
            if self._open_store.state.flushed_to < result.commit_log_end:
                self.ledger.faults.append(f"a SYNC send of {result.commit_log_end} returned before its flush")

    def send_batch(self) -> None:
        """Send some messages at once."""
        self._arm(_APPENDING)
        topic = self._topic()
        messages = [self._message(topic) for _ in range(self._chance.randint(2, 6))]
        results: list[SendResult] = self._appending().append_batch(messages, str(self._chance.randrange(9)))
        self.ledger.learn(self._moment(), self._log())
        self.ledger.acknowledge(results)

    def flush(self) -> None:
        """Do a part of a housekeeper's work."""
        store = self._open_store
        self._arm((CrashPoint.FLUSH_SYNCED,))
        self._chance.choice(
            (
                store.flusher.flush_timed,
                store.flusher.flush_thorough,
                store.flusher.flush_thorough,
                store.flusher.flush,
                store.flusher.flush_queues,
                store.flusher.write_checkpoint,
                store.appenders.prepare_next_file,
            )
        )()

    def index(self) -> None:
        """Bring the index up to date."""
        self._arm((CrashPoint.INDEX_WRITTEN, CrashPoint.INDEX_FILE_FULL))
        self._open_store.index.catch_up()

    def consume(self) -> None:
        """Take messages of one queue and acknowledge some of them, not always in order."""
        queue = self._chance.choice(self._open_store.topics.queues(self._topic()))
        grant = self._grant(queue.topic, queue.queue_id)
        taken = [message.queue_offset for message in grant.take(self._chance.choice((3, 20, _SPAN)), _SPAN)]
        self._chance.shuffle(taken)
        done = taken[: max(1, len(taken) - self._chance.randrange(2))]
        if done:
            assert grant.acknowledge_offsets(done)
        del self._grants[queue.topic, queue.queue_id]
        if self._chance.random() < 0.3:
            self.persist_offsets()

    def persist_offsets(self) -> None:
        """Write ``consumerOffset.json``."""
        self._note_progress()
        self._arm((CrashPoint.OFFSETS_TEMPORARY,))
        self._open_store.offsets.persist()
        self._note_floors()

    def close_and_open(self) -> None:
        """Leave the store clean, and come back."""
        self._note_progress()
        self._arm((CrashPoint.CLOSE_CHECKPOINTED,))
        self._open_store.close()
        self._note_floors()
        self._store = None
        self._open()

    def die_and_open(self) -> None:
        """Die between two operations, and come back while the kernel lives."""
        self._abandon()
        self._open()

    def die_in_append(self) -> None:
        """A process dies in the middle of an append; others go on, or all are gone and somebody comes back."""
        topic = self._topic()
        messages = [self._message(topic) for _ in range(self._chance.choice((1, 1, 3)))]
        point = self._chance.choice(_KILLED)
        key = str(self._chance.randrange(9))
        child = os.fork()
        if child == 0:
            try:
                crash_points.arm(point, signal_number=signal.SIGKILL)
                self._appending().append_batch(messages, key)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        self._moment()
        if self._chance.random() < 0.5:
            self.die_and_open()

    # --- the rest ---------------------------------------------------------------------------------

    @property
    def _open_store(self) -> MessageStore:
        assert self._store is not None
        return self._store

    def _open(self) -> None:
        self._arm(_OPENING)
        self._store = open_store(self.root, CONFIG, housekeeping=False)
        self.recorder.disarm()
        self._appender = None
        self._grants.clear()
        moment = self._moment()
        self.ledger.is_made.note(moment, True)
        self._note_progress()
        restored = {(slot.group, self._open_store.topics.queue(slot.queue_slot)) for slot in self._open_store.groups}
        for key in self.ledger.ceilings.keys() - restored:
            self.ledger.ceilings[key].note(moment, 0)
        for key, floor in self.ledger.floors.items():
            floor.note(moment, min(floor.last, self.ledger.ceilings[key].last))

    def _abandon(self) -> None:
        """Leave as a killed process does: its locks go, and nothing else is done."""
        store = self._open_store
        store.life.is_closed = True
        store.lock.close()
        self._store = None

    def _arm(self, points: tuple[CrashPoint, ...]) -> None:
        self.recorder.arm(self._chance.choice(points), passes=self._chance.choice((0, 0, 0, 1)))

    def _moment(self) -> int:
        return self.recorder.moment()

    def _returned(self) -> None:
        self.ledger.learn(self._moment(), self._log())
        self._note_progress()

    def _watch(self, moment: int) -> None:
        self.ledger.learn(moment, self._log())
        if self._store is not None:
            self.ledger.promise(moment, self._store.state.flushed_to)

    def _log(self) -> dict[str, bytes]:
        return self.recorder.timeline.present("commitlog")

    def _topic(self) -> str:
        """Return the topic for the next message, made if nobody has made it."""
        topic = self._chance.choice(list(TOPICS))
        if topic not in self.ledger.topics.last:
            self._open_store.topics.create(topic, TOPICS[topic])
            self.ledger.topics.note(self._moment(), (*self.ledger.topics.last, topic))
        return topic

    def _message(self, topic: str) -> Message:
        number = len(self.ledger.sent)
        body = body_of(number, self._chance.choice(self._sizes))
        tag = self._chance.choice(TAGS) if len(self._sizes) > 1 else None
        keys = self._chance.choice(KEYS) if len(self._sizes) > 1 else KEYS[1]
        self.ledger.sent[number] = Sent(topic, body, tag, keys)
        return Message(topic, body, tags=tag, keys=keys)

    def _appending(self) -> Appender:
        if self._appender is None:
            store = self._open_store
            self._appender = store.appenders.make(
                lambda topic: store.topics.create(topic, TOPICS[topic]), bytes_of, prepare=False
            )
        return self._appender

    def _grant(self, topic: str, queue_id: int) -> QueueGrant:
        store = self._open_store
        queue = store.topics.queues(topic)[queue_id]
        slot = store.groups.find_or_add(GROUP, store.topics.slot(queue), 0)
        with slot.locked(CONFIG.lock_timeout_ms):
            epoch = slot.load("epoch") + 1
            slot.store("epoch", epoch)
        grant = self._grants[topic, queue_id] = store.grants.grant(slot, epoch, TagSet(()))
        return grant

    def _note_progress(self) -> None:
        store, moment = self._open_store, self.recorder.timeline.moment
        for slot in store.groups:
            key = (slot.group, store.topics.queue(slot.queue_slot))
            if key not in self.ledger.ceilings:
                self.ledger.ceilings[key] = Steps(0)
            self.ledger.ceilings[key].note(moment, slot.committed_offset)

    def _note_floors(self) -> None:
        moment = self._moment()
        for key, ceiling in self.ledger.ceilings.items():
            if key not in self.ledger.floors:
                self.ledger.floors[key] = Steps(0)
            self.ledger.floors[key].note(moment, ceiling.last)


def bytes_of(body: object) -> bytes:
    """Encode a body that is not bytes; there is none."""
    raise TypeError(f"{body!r:.40} is not bytes")


OPERATIONS: dict[Callable[[Life], None], float] = {
    Life.send: 30,
    Life.send_batch: 8,
    Life.flush: 8,
    Life.index: 3,
    Life.consume: 12,
    Life.persist_offsets: 5,
    Life.close_and_open: 0.7,
    Life.die_and_open: 0.7,
    Life.die_in_append: 1.5,
}
"""How often each is done."""
