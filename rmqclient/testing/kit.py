"""Kit: an application under test, with the real store, the real consumer, and a clock that the test moves.

The store lies in a directory of the test. Handlers run in threads of the test's process, as in a worker, but only while
the test drains: between two drains nothing begins, so what a test sees stands still. The clock of the store is moved by
the test alone; it moves delays, retries, schedules, checks of transactions, and every process at this store.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from rmqclient.app import App
from rmqclient.calling.hooks import hooks_of
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.duration import Duration
from rmqclient.failures import dead_letters
from rmqclient.failures.dead_letters import DeadLetter, Selection
from rmqclient.local.backend import local_backend
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.names import CRON_GROUP
from rmqclient.schedules.cron_sender import CronSender
from rmqclient.sending.producer import Producer
from rmqclient.store import HALF_TOPIC, StoreConfig, clock, open_store
from rmqclient.store.closing import Closing
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.waiting.half_messages import checks_of, group_of
from rmqclient.testing import processes
from rmqclient.testing.directory import kit_directory
from rmqclient.testing.processes import Consumer, Workers
from rmqclient.testing.recorder import Drained, DrainTimeout, Recorder
from rmqclient.testing.sent import Where, complaint, matches, messages

CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 23,
    consume_queue_file_entries=2_000,
    index_slots=1_000,
    index_entries=4_000,
)
"""A store that is made in moments: files of 8 MiB, bodies of every length that a usual store takes."""

LONGEST_DRAIN_S = 30.0
"""Real seconds: no test waits for a handler that never returns."""

_FIRST_LOOK_S = 0.0001
_LONGEST_LOOK_S = 0.002
_ANSWERED_S = 1.0
_COUNTED = ("handled", "failed", "dead_lettered")


class Kit(Closing):
    """One store, and the applications that a test tries on it. A context manager.

    ``config`` is by default that of the first application that has one, with small files. ``now`` is the time at which
    the kit begins, at the earliest the present; what schedules had planned before is not sent.

    While it is open, ``app.root`` of each application names this store. A second kit in the same process waits for the
    first one's end, because a process follows one clock: it raises ConfigMismatch. Raises ValueError for a ``now`` that
    is past.
    """

    def __init__(self, *apps: App, config: StoreConfig | None = None, now: datetime.datetime | None = None) -> None:
        self.apps = apps
        self._stack = ExitStack()
        self._recorder = Recorder()
        self._consumer: PushConsumer | None = None
        self._workers: Workers | None = None
        self._counted = (0, 0, 0)
        """What the groups had done when the workers began, or at the end of the last drain beside them."""
        self._crons: list[CronSender] = []
        try:
            self.root = self._stack.enter_context(kit_directory()) / "store"
            """The directory of the store, for code under test that opens it by itself."""
            self.root.mkdir()
            clock.make(self.root)
            self._store = self._stack.enter_context(open_store(self.root, config or _config_of(apps)))
            if now is not None:
                clock.advance(now - self.now)
            self._begin = self.now
            self._backend = local_backend(self._store)
            self.producer = self._stack.enter_context(Producer(self._store))
            """A producer of the test's own."""
            for app in apps:
                self._stack.enter_context(app.override(store=self.root))
            self._stack.callback(self._recorder.close)
        except BaseException:
            self._stack.close()
            raise

    # --- sending ----------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        body: object = b"",
        *,
        key: str | None = None,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay: Duration | None = None,
        deliver_at: datetime.datetime | None = None,
        delay_level: int | None = None,
    ) -> SendResult:
        """Send one message, as :meth:`rmqclient.Producer.send`; no handler gets it before :meth:`drain`.

        ``key`` is one key, before those of ``keys``.
        """
        named = [*keys] if key is None else [key, *keys]
        message = Message(topic, body, tags=tags, keys=named, properties=dict(properties or {}))
        return self.producer.send(message, sharding_key, delay=delay, deliver_at=deliver_at, delay_level=delay_level)

    def request(
        self, topic: str, body: object = b"", *, timeout: Duration = 10, tags: str | None = None
    ) -> ReceivedMessage:
        """Send a request, let handlers run until its reply comes, and return that. Raises RequestTimeout."""
        with self.running():
            return self.producer.request(Message(topic, body, tags=tags), timeout)

    # --- handling ---------------------------------------------------------------------------------

    def drain(self, *, raises: bool = True, timeout_s: float = LONGEST_DRAIN_S) -> Drained:
        """Handle everything that is due, also what the handlers send meanwhile, and tell what happened.

        Messages that wait for a time stay where they are: :meth:`advance` the clock. With ``raises``, the first
        exception that a handler raised is raised here when all is done; failures that :meth:`failing` asked for are
        not. Raises DrainTimeout when handlers are still at work after ``timeout_s`` real seconds.

        Beside :meth:`workers`, which handle a message as soon as it is sent, this tells what happened since they began
        or since the last drain.
        """
        before = self._totals() if self._workers is None else self._counted
        self._recorder.begin()
        with self.running() as consumer:
            self._wait_until(lambda: self._is_drained(consumer), timeout_s)
        self._counted = self._totals()
        handled, failed, dead = (now - then for now, then in zip(self._counted, before, strict=True))
        drained = Drained(handled, failed, dead, self._recorder.raised)
        if raises:
            drained.check()
        return drained

    @contextmanager
    def running(self) -> Iterator[Consumer]:
        """Let handlers run beside the test until the end of the block, for code that waits for them."""
        consumer = self._started()
        consumer.resume()
        try:
            yield consumer
        finally:
            consumer.hold()

    def advance(self, by: datetime.timedelta | None = None, **time_: float) -> None:
        """Move the clock forward: ``advance(minutes=10)``. What is due by then goes to its queue; then :meth:`drain`.

        Messages with a delay are delivered, retries too; schedules send; producers are asked about undecided
        transactions. It is as if nothing had run meanwhile: of several planned times of a schedule that lie within its
        ``misfire_grace``, the last one sends, unless ``coalesce=False``. Raises ValueError for a negative time.
        """
        clock.advance(datetime.timedelta(**time_) if by is None else by)
        self._wait_until(lambda: not self._has_due(), LONGEST_DRAIN_S)
        self._send_planned()
        self._store.transactions.check()
        self._let_producers_answer()
        self._wait_until(lambda: not self._has_due(), LONGEST_DRAIN_S)

    @property
    def now(self) -> datetime.datetime:
        """The time of the kit's clock."""
        return datetime.datetime.fromtimestamp(clock.wall_ns() / 1e9, datetime.UTC)

    # --- failing ----------------------------------------------------------------------------------

    def failing(
        self,
        target: Callable[..., object] | str,
        error: BaseException | type[BaseException] = RuntimeError,
        *,
        times: int = 1,
    ) -> None:
        """Let the next calls of a handler raise instead of running, or the next sends of this process (``"send"``).

        Raises ValueError for a function that is no handler of the applications, and for ``times`` below 1.
        """
        if times < 1:
            raise ValueError(f"times={times}: must be at least 1")
        if target != "send" and all(target is not each.function for app in self.apps for each in app.handlers):
            raise ValueError(f"{target!r}: give the function of a handler of these applications, or 'send'")
        self._recorder.plan(target, error if isinstance(error, BaseException) else error("as the test wants it"), times)

    def crash_here(self, at: CrashPoint | str | Callable[..., object], *, passes: int = 0) -> int:
        """Run the handlers in a process of their own until it is killed (``SIGKILL``) at a point; return its pid.

        ``at`` is a point of :class:`rmqclient.store.crash_points.CrashPoint` or its name, such as ``"ack_locked"`` (the
        handler has returned, the message is not acknowledged), or the function of a handler, which is killed when it is
        called. ``passes`` is how often the point is passed unharmed before. Then :meth:`drain` does what another worker
        would.

        The process is forked, so handlers may be functions of a test. Raises AssertionError if there was nothing to do
        before the point was reached.
        """
        self._leave_groups()
        return processes.crash(self.root, self.apps, at, passes)

    @contextmanager
    def workers(self, count: int = 1) -> Iterator[list[int]]:
        """Run the handlers in so many processes of their own until the end of the block; yields their pids.

        Meanwhile :meth:`drain` waits for them. What their handlers raise is logged there, and what they change in
        memory stays there.
        """
        self._leave_groups()
        self._counted = self._totals()
        with processes.workers(self.root, self.apps, count) as pids:
            self._workers = Workers(self._store, self.apps)
            try:
                yield pids
            finally:
                self._workers = None

    # --- looking ----------------------------------------------------------------------------------

    def sent(self, topic: str, where: Where = None, *, tags: str | None = None) -> list[ReceivedMessage]:
        """Return the messages that were sent to a topic, those that still wait for their time included.

        ``where`` are fields of the JSON body, ``{"order": 1}``, or a function of the message. ``tags`` is a tag.
        """
        return [each for each in messages(self._store, topic) if matches(each, where, tags)]

    def assert_sent(
        self, topic: str, where: Where = None, *, tags: str | None = None, times: int | None = None
    ) -> list[ReceivedMessage]:
        """Return the messages that match, as :meth:`sent`. Raises AssertionError for none, or for not ``times``."""
        found = self.sent(topic, where, tags=tags)
        if not found if times is None else len(found) != times:
            raise AssertionError(complaint(self._store, topic, where, tags, found, times))
        return found

    def refute_sent(self, topic: str, where: Where = None, *, tags: str | None = None) -> None:
        """Raise AssertionError if a message was sent that matches, as :meth:`sent`."""
        self.assert_sent(topic, where, tags=tags, times=0)

    def dead_letters(self, group: str) -> list[DeadLetter]:
        """Return the messages that a group gave up."""
        return list(dead_letters.select(self._store, group, Selection(done=True)))

    def calls(self, function: Callable[..., object]) -> list[object]:
        """Return what a handler of this process was called with, those calls included that raised."""
        return self._recorder.calls(function)

    # --- in a loop --------------------------------------------------------------------------------

    async def adrain(self, *, raises: bool = True, timeout_s: float = LONGEST_DRAIN_S) -> Drained:
        """Drain, as :meth:`drain`, while the loop goes on."""
        return await asyncio.to_thread(self.drain, raises=raises, timeout_s=timeout_s)

    async def aadvance(self, by: datetime.timedelta | None = None, **time_: float) -> None:
        """Move the clock, as :meth:`advance`, while the loop goes on."""
        await asyncio.to_thread(self.advance, by, **time_)

    async def arequest(
        self, topic: str, body: object = b"", *, timeout: Duration = 10, tags: str | None = None
    ) -> ReceivedMessage:
        """Send a request, as :meth:`request`, while the loop goes on."""
        return await asyncio.to_thread(self.request, topic, body, timeout=timeout, tags=tags)

    # --- its life ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave the groups, close the store and remove it. Closing twice does nothing."""
        try:
            self._leave_groups()
        finally:
            self._stack.close()

    def _started(self) -> Consumer:
        """Return what handles messages: the workers, or the consumer of this process, which is started first."""
        if self._workers is not None:
            return self._workers
        if self._consumer is None:
            handlers = [self._recorder.recording(each) for app in self.apps for each in app.handlers]
            settings = next((app.consumer for app in self.apps if app.consumer is not None), None)
            tables = self.apps[0].tables if self.apps else None
            self._consumer = PushConsumer(
                self._store,
                handlers,
                member_name="kit",
                config=settings,
                tables=tables,
                hooks=hooks_of(self.apps),
            )
            self._consumer.hold()
            self._consumer.start()
        return self._consumer

    def _leave_groups(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _is_drained(self, consumer: Consumer) -> bool:
        """Tell whether nothing is left to do; two looks, because other threads work between the parts of one."""
        self._send_planned()
        return all(not self._has_due() and consumer.is_idle() for _ in range(2))

    def _has_due(self) -> bool:
        return self._store.schedule.has_due() or self._store.timer.has_due()

    def _send_planned(self) -> None:
        """Send what the schedules of the applications send by now."""
        if not self._crons:
            producer = self._stack.enter_context(Producer(self._store, group=CRON_GROUP))
            self._crons = [
                CronSender(self._backend, producer, each, since=self._begin) for app in self.apps for each in app.crons
            ]
        for cron in self._crons:
            cron.look()

    def _let_producers_answer(self) -> None:
        """Wait a moment until producers have answered for the transactions that they are asked about."""
        until = time.monotonic() + _ANSWERED_S
        while time.monotonic() < until and self._is_asking():
            time.sleep(_FIRST_LOOK_S)

    def _is_asking(self) -> bool:
        """Tell whether a producer that is open is asked about a transaction."""
        open_groups = {each.group for each in self._store.members().roll.all() if each.topic == HALF_TOPIC}
        pending = self._store.transactions.pending() if open_groups else []
        return any(checks_of(each) > 0 and group_of(each) in open_groups for each in pending)

    def _totals(self) -> tuple[int, int, int]:
        """Return how many messages all groups have handled, how many attempts failed, and how many are dead letters."""
        slots = list(self._store.groups)
        handled, failed, dead = (sum(each.load(name) for each in slots) for name in _COUNTED)
        return handled, failed, dead

    def _wait_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        pause_s = _FIRST_LOOK_S
        while not condition():
            if time.monotonic() > deadline:
                raise DrainTimeout(
                    f"handlers are still at work after {timeout_s:g} s: {self._recorder.running or 'none'}"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)


def _config_of(apps: Sequence[App]) -> StoreConfig:
    """Return the settings that the applications name, for a store of small files."""
    found = next((app.config for app in apps if app.config is not None), None)
    if found is None:
        return CONFIG
    return replace(
        found,
        commit_log_file_bytes=max(CONFIG.commit_log_file_bytes, 2 * found.max_body_bytes),
        consume_queue_file_entries=CONFIG.consume_queue_file_entries,
        index_slots=CONFIG.index_slots,
        index_entries=CONFIG.index_entries,
    )
