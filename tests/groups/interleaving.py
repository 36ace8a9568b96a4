"""Interleavings of the rebalance: the real code of several members, of which one runs at a time.

Each member is a thread with a store handle of its own. Before each access to shared memory, to a mutex or to a byte
lock it may have to hand over to another one; a random generator says to whom, so that a seed is a whole run. Members
are killed at such a point, also while they hold a mutex, which the kernel then hands on; they are stopped past their
lease, leave and join. The clock is the run's own.

What must hold whenever a queue is granted, and at the end::

    1  no two grants of a queue have the same epoch
    2  nobody else holds the queue under a lease that has not run out, unless he is dead
    3  when nothing happens any more every queue has a living owner, as the strategy says
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from rmqclient.allocation import allocate
from rmqclient.backend.group_protocols import Grant, Terms
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming import allocator, rebalance
from rmqclient.consuming.rebalance import Rebalancer
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.filters import MessageFilter
from rmqclient.local.backend import local_backend
from rmqclient.local.groups import LocalMembers, LocalMembership
from rmqclient.store import MessageQueue, MessageStore, QueueGrant, layout, open_store
from rmqclient.store.files.file_lock import MEMBER_BYTES, LockFile
from rmqclient.store.runtime import awake, members, roll
from rmqclient.store.runtime.awake import Awake
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.runtime.shared_state import member_slot_at

STRATEGIES = ("averaged", "sticky", "hash")
MEMBERS = 5
"""As many as may live at the same time."""
QUEUES = 5
TURNS = 1_200
CONFIG = ConsumerConfig(lease_ms=1_000, liveness_interval_ms=100, drain_ms=200, rebalance_interval_ms=2_000)
_POINTS = {
    # Not load32: what is read by it does not change, and functools.cached_property has one lock for all members.
    "words": {"load", "store", "add", "replace", "store32"},
    "lock": {"try_exclusive", "unlock", "holder"},
}


@contextmanager
def stage(root: Path) -> Iterator[Callable[[int], Run]]:
    """Make a store, and yield what plays one run in it; a run raises Broken."""
    clock = Clock()
    with ExitStack() as stack:
        stores = [stack.enter_context(open_store(root, housekeeping=False)) for _ in range(MEMBERS)]
        for queue_count in range(1, QUEUES + 1):
            stores[0].topics.create(f"t{queue_count}", queue_count)
        for store in stores:  # no thread of the host looks at the clock of the run
            stack.enter_context(mock.patch.object(store.state, "awake", Awake()))
        for module in (members, roll, awake):
            stack.enter_context(mock.patch.object(module, "boottime", clock.boottime))
        for module in (allocator, rebalance):
            stack.enter_context(mock.patch.object(module, "time", SimpleNamespace(monotonic=clock.monotonic)))

        def play(seed: int) -> Run:
            run = Run(seed, stores, clock, f"t{seed % QUEUES + 1}", STRATEGIES[seed % len(STRATEGIES)])
            run.happen(TURNS)
            return run

        yield play


class Killed(BaseException):
    """Raised where a member dies."""


class Broken(AssertionError):
    """One of the three does not hold."""


class Clock:
    """The time of a run."""

    def __init__(self) -> None:
        self.now_ns = 10**12

    def boottime(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return self.now_ns / 1e9


class Yielding:
    """Something shared, before each access to which another member may run."""

    def __init__(self, shared: object, names: set[str], run: Run) -> None:
        self._shared = shared
        self._names = names
        self._run = run

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._shared, name)
        if name in self._names:
            self._run.point()
        return found


class Process:
    """One member: a thread with a store handle, which stands in for the delivery as well."""

    def __init__(self, run: Run, store: MessageStore, client_id: str) -> None:
        self.run = run
        self.store = store
        self.client_id = client_id
        self.queues: tuple[ProcessQueue, ...] = ()
        self.leases: dict[MessageQueue, int] = {}
        self.rebalancer: Rebalancer[ProcessQueue] | None = None
        self.go = threading.Semaphore(0)
        self.leaving = self.killed = self.ended = False
        self.stopped_for = 0
        self.left: list[Any] = []
        """The mutexes that it held when it was killed."""
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()

    @property
    def keeps_order(self) -> bool:
        return False

    def make_queue(self, grant: Grant, _deaths: object) -> ProcessQueue:
        return ProcessQueue(grant, CONFIG)

    def set_queues(self, queues: tuple[ProcessQueue, ...]) -> None:
        self.queues = queues

    def is_handling(self, _queue: ProcessQueue) -> bool:
        return self.run.random.random() < 0.5

    def is_between(self, _queue: ProcessQueue) -> bool:
        return False

    @property
    def kept_s(self) -> float:
        return 0.0

    def has_waiting(self, _queues: object) -> bool:
        return False

    @property
    def held(self) -> dict[MessageQueue, ProcessQueue]:
        return {} if self.rebalancer is None else self.rebalancer._held

    def _live(self) -> None:
        self.go.acquire()
        try:
            self._consume()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - told by the run
            self.failure = error
        self.ended = True
        self.run.back.release()

    def _consume(self) -> None:
        run = self.run
        backend = local_backend(self.store)
        membership = LocalMembers(self.store).join(
            run.group, run.topic, self.client_id, Terms("the same", MessageFilter(), lease_ms=CONFIG.lease_ms)
        )
        self._watch(membership)
        self.rebalancer = Rebalancer(backend, membership, self, CONFIG, run.strategy)
        while not self.leaving:
            self.rebalancer.step()
            run.clock.now_ns += run.random.randrange(60) * 10**6
            run.hand_over()
        self.rebalancer.release_all()
        membership.leave()

    def _watch(self, membership: LocalMembership) -> None:
        take, grant = membership._member.take, membership.grant

        def watched_take(slot: GroupQueueSlot, lease_ms: int, *, lends: bool = False) -> int | None:
            until = self.run.clock.now_ns + lease_ms * 10**6
            epoch = take(slot, lease_ms, lends=lends)
            if epoch is not None:
                self.run.check_grant(self, self.store.topics.queue(slot.queue_slot), epoch)
                self.leases[self.store.topics.queue(slot.queue_slot)] = until
            return epoch

        def watched_grant(queue: MessageQueue) -> Any:
            granted = grant(queue)
            return None if granted is None else TimedGrant(granted, self)

        membership._member.take = watched_take  # type: ignore[method-assign]
        membership.grant = watched_grant  # type: ignore[method-assign]


class TimedGrant:
    """A grant whose lease ends by the clock of the run.

    The kernel renews and releases under the mutex of the slot. Another member may have that when its turn ends, so this
    waits until it is free, and nobody else runs between that and the call.
    """

    def __init__(self, grant: QueueGrant, process: Process) -> None:
        self._grant = grant
        self._process = process
        self._slot = GroupQueueSlot(process.store.state, grant.group_queue)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grant, name)

    def renew(self, lease_ms: int) -> bool:
        """Renew, and let the lease end by the clock of the run."""
        self._wait_for_mutex()
        until = self._process.run.clock.now_ns + lease_ms * 10**6
        if not self._grant.renew(lease_ms):
            return False
        words: Any = self._process.store.state.words
        words._shared.store(self._slot.at + layout.GROUP_QUEUE_SLOT.at["lease_until"], until)
        self._process.leases[self._grant.queue] = until
        return True

    def release(self) -> bool:
        """Give the queue back."""
        self._wait_for_mutex()
        return self._grant.release()

    def _wait_for_mutex(self) -> None:
        self._process.run.point()
        while not self._slot.mutex.try_acquire():
            self._process.run.hand_over()
        self._slot.mutex.release()


class Run:
    """One run: everything that happens follows from the seed. ``stores`` are handles of one directory."""

    def __init__(self, seed: int, stores: Sequence[MessageStore], clock: Clock, topic: str, strategy: str) -> None:
        self.random = random.Random(seed)
        self.group = f"g{seed}"
        self.topic = topic
        self.strategy = strategy
        self.clock = clock
        clock.now_ns = 10**12
        self.back = threading.Semaphore(0)
        self.processes: list[Process] = []
        self.killed = 0
        self.grants: set[tuple[MessageQueue, int]] = set()
        """With their epochs."""
        self._stores = list(stores)
        self._queues = stores[0].topics.queues(topic)
        self._current: Process | None = None
        self._quiet = False
        self._originals = [(store.state.words, store.lock) for store in stores]

    def happen(self, turns: int) -> None:
        """Let members come, go, stop and die for so many turns, then calm down. Raises Broken."""
        try:
            self._make_yielding()
            for _ in range(self.random.randint(1, 3)):
                self._start()
            for _ in range(turns):
                self._disturb()
                self._turn()
            for process in self.processes:
                process.stopped_for = 0
            for _ in range(60 * len(self.processes) * 20):
                self._turn()
                if self._is_settled():
                    return
            raise Broken(f"not settled: {self._owners()}")
        finally:
            self._end()

    def point(self) -> None:
        """Called before an access: now and then somebody else goes on."""
        current = self._current
        if current is None or self._quiet:
            return
        if current.killed:
            raise Killed
        if self.random.random() < 0.3:
            self.hand_over()

    def hand_over(self) -> None:
        """Go on when it is this member's turn again; or never."""
        current = self._current
        assert current is not None
        self.back.release()
        current.go.acquire()
        if current.killed:
            raise Killed

    def check_grant(self, owner: Process, queue: MessageQueue, epoch: int) -> None:
        """Look at the first two of what must hold; nobody else runs meanwhile."""
        if (queue, epoch) in self.grants:
            raise Broken(f"epoch {epoch} of {queue} was granted twice")
        self.grants.add((queue, epoch))
        for other in self.processes:
            if other is owner or other.ended or other.killed or queue not in other.held:
                continue
            if other.leases[queue] >= self.clock.now_ns:
                raise Broken(f"{queue} went to {owner.client_id} while {other.client_id} had it")

    def _turn(self) -> None:
        running = [process for process in self.processes if not process.ended and process.stopped_for == 0]
        for process in self.processes:
            process.stopped_for = max(0, process.stopped_for - 1)
        if not running:
            self.clock.now_ns += 50 * 10**6
            return
        self._current = self.random.choice(running)
        self._current.go.release()
        self.back.acquire()
        process, self._current = self._current, None
        if process.ended:
            self._bury(process)

    def _disturb(self) -> None:
        living = [process for process in self.processes if not process.ended]
        chance = self.random.random()
        if chance < 0.004 and len(living) < len(self._stores):
            self._start()
        elif living and chance < 0.006:
            self.random.choice(living).killed = True
            self.killed += 1
        elif living and chance < 0.008:
            self.random.choice(living).leaving = True
        elif living and chance < 0.010:
            self.random.choice(living).stopped_for = self.random.randint(20, 1_500)

    def _start(self) -> None:
        busy = {id(process.store) for process in self.processes if not process.ended}
        store = next(store for store in self._stores if id(store) not in busy)
        self.processes.append(Process(self, store, f"{self.random.randrange(10**6)}-{len(self.processes)}"))

    def _bury(self, process: Process) -> None:
        """Do what the end of a process does: others get the mutexes that it held, and its bytes of the lock file."""
        process.thread.join()
        for mutex in process.left:  # the owner that its store has lives on, for the next process
            mutex.release()
        lock = process.store.lock
        for slot in range(layout.MEMBER_SLOTS):
            if lock.holds(MEMBER_BYTES + slot):
                lock.unlock(MEMBER_BYTES + slot)
        if process.failure is not None:
            raise process.failure

    def _owners(self) -> dict[MessageQueue, str | None]:
        """Who holds what, by the members' own word and by the epoch."""
        found: dict[MessageQueue, str | None] = dict.fromkeys(self._queues)
        for process in self.processes:
            if not process.ended:
                for queue, held in process.held.items():
                    if not held.revoked and held.grant.valid:
                        found[queue] = process.client_id
        return found

    def _is_settled(self) -> bool:
        living = [process.client_id for process in self.processes if not process.ended and not process.leaving]
        if len(living) < sum(not process.ended for process in self.processes):
            return False
        owners = self._owners()
        if not living:
            return True
        if self.strategy == "sticky":
            shares = sorted(list(owners.values()).count(client_id) for client_id in living)
            return None not in owners.values() and shares[-1] - shares[0] <= 1
        wanted = allocate(self.strategy, living, list(owners))
        return owners == {queue: client_id for client_id, part in wanted.items() for queue in part}

    def _make_yielding(self) -> None:
        for slot in range(layout.MEMBER_SLOTS):
            self._stores[0].state.words.store(member_slot_at(slot) + layout.MEMBER_SLOT.at["incarnation"], 0)
        for store in self._stores:
            state: Any = store.state
            state.words = Yielding(state.words, _POINTS["words"], self)
            state.locked = self._locked
            object.__setattr__(store, "lock", cast("LockFile", Yielding(store.lock, _POINTS["lock"], self)))
            store.groups.__init__(state, store.groups._lock_timeout_ms)  # type: ignore[misc]
            # What a process knows of the tables that only grow depends on earlier runs; members do not meet there.
            for table in (store.groups, store.topics):
                table._read_on = self._quietly(table._read_on)  # type: ignore[method-assign]

    def _quietly(self, method: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            self._quiet = True
            try:
                method()
            finally:
                self._quiet = False

        return call

    @contextmanager
    def _locked(self, mutex: Any, _timeout_ms: int) -> Iterator[None]:
        current = self._current
        while not mutex.try_acquire():
            self.hand_over()
        try:
            self.point()
            yield
        finally:
            if current is not None and current.killed:
                current.left.append(mutex)
            else:
                mutex.release()

    def _end(self) -> None:
        for process in self.processes:
            process.killed = True
            while not process.ended:
                self._current = process
                process.go.release()
                self.back.acquire()
                self._current = None
            process.failure = None
            self._bury(process)
        for store, (words, lock) in zip(self._stores, self._originals, strict=True):
            state: Any = store.state
            state.words = words
            object.__setattr__(store, "lock", lock)
            del state.locked, store.groups._read_on, store.topics._read_on
            store.groups.__init__(state, store.groups._lock_timeout_ms)  # type: ignore[misc]
