"""Push consumer: runs every handler of an application, and its schedules, in one process.

Each handler is a member of its group. One thread renews leases and sees to the rebalance, and sleeps in between on the
bell of its members; the handlers' own threads deliver. Each schedule has a thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from rmqclient.backend.backend import Backend
from rmqclient.backend.group_protocols import Members, Membership, Terms
from rmqclient.calling.current import log_fields
from rmqclient.calling.event_loop import LAST_WORDS_S, EventLoop
from rmqclient.calling.hooks import Hooks
from rmqclient.calling.lifespan import ProcessLife
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.broadcast import DroppedFailures, group_of_member
from rmqclient.consuming.late_handlers import LateHandlers
from rmqclient.consuming.losses import Losses
from rmqclient.consuming.rebalance import Rebalancer
from rmqclient.consuming.retry_topic import RetryTopic
from rmqclient.consuming.start_position import begin
from rmqclient.delivery.caller import Callers
from rmqclient.delivery.delivery import Delivery, Parts
from rmqclient.delivery.modes.batch import BatchDelivery
from rmqclient.delivery.modes.concurrent import ConcurrentDelivery
from rmqclient.delivery.modes.key_ordered import KeyOrderedDelivery
from rmqclient.delivery.modes.orderly import OrderlyDelivery
from rmqclient.duration import Duration, in_seconds
from rmqclient.errors import HandlerError
from rmqclient.failures.retry import Retries
from rmqclient.filters import MessageFilter
from rmqclient.handler import Handler, is_async
from rmqclient.names import CRON_GROUP
from rmqclient.opening import Place, open_backend
from rmqclient.schedules.cron import Cron
from rmqclient.schedules.cron_sender import CronSender
from rmqclient.sending.producer import Producer
from rmqclient.store import MessageQueue, StoreConfig, boottime, check_client_id, clock, default_client_id
from rmqclient.store.errors import QueueError, StoreReplaced, UnknownTopic
from rmqclient.store.native_threads import check_unpatched
from rmqclient.store.numbers import check_kind
from rmqclient.store.threads.guarded import GuardedThread, Loss
from rmqclient.store.threads.logs import Log
from rmqclient.tables.app_table import AppTables
from rmqclient.tracing.message_trace import MessageTrace
from rmqclient.tracing.observers import Observer, observers_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_log = Log(__name__)

_LOST_DRAIN_S = 30.0
"""How long handlers may run on when the process has lost a thread of the library."""


@dataclass(frozen=True, slots=True)
class ConsumerCounters:
    """What a process is doing, and has done since its consumer started."""

    in_flight: int
    """Messages whose handler runs now, and functions of schedules."""
    handled: int
    failed: int
    message_started_ns: int
    """CLOCK_BOOTTIME in ns when the call that runs longest was first seen running; 0 when no call runs."""
    overdue: tuple[str, ...] = ()
    """Schedules with a tick that has passed by more than a minute, and whose message nobody has sent."""


class Subscription:
    """One handler of this process: its membership, its queues and its threads."""

    def __init__(
        self,
        backend: Backend,
        members: Members,
        handler: Handler,
        client_id: str,
        config: ConsumerConfig,
        callers: Callers,
        member_name: str | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.handler = handler
        self.filter = MessageFilter(handler.tags, handler.filters)
        group = handler.group
        if handler.broadcast:  # no other process may be this member, so its name is its client id, too
            group, client_id = group_of_member(handler, member_name), member_name or client_id
        begin(backend, group, handler.topic, handler.start)
        self.membership = members.join(
            group,
            handler.topic,
            client_id,
            Terms(handler.subscription, self.filter, handler.order is not None, config.lease_ms),
        )
        self.delivery = make_delivery(backend, handler, self.membership, config, callers)
        self.delivery.observe(observers)
        self.rebalancer = Rebalancer(backend, self.membership, self.delivery, config, handler.allocation)


def make_delivery(
    backend: Backend, handler: Handler, membership: Membership, config: ConsumerConfig, callers: Callers
) -> Delivery[Any]:
    """Return the threads of a handler, in the mode that it asks for."""
    parts = Parts(backend, handler, membership, config, callers)
    one_by_one = _one_by_one(handler)
    if handler.broadcast:
        return one_by_one(parts, DroppedFailures(handler.group, handler.retry, membership.client_id))
    retries = Retries(backend, handler.group, handler.retry, membership.client_id)
    if handler.order is not None:
        return KeyOrderedDelivery(parts, retries) if handler.order == "key" else OrderlyDelivery(parts, retries)
    return (BatchDelivery if handler.batch is not None else one_by_one)(parts, retries)


def _one_by_one(handler: Handler) -> type[ConcurrentDelivery]:
    if not is_async(handler.function):
        return ConcurrentDelivery
    from rmqclient.delivery.modes.coroutines import CoroutineDelivery  # noqa: PLC0415 - only coroutines need asyncio

    return CoroutineDelivery


class PushConsumer:
    """Handlers that run in this process; a context manager. :meth:`start` starts it, :meth:`stop` stops it.

    :meth:`rmqclient.App.start` makes one of an application. Each thread of a handler is a thread of this process; all
    coroutines run in one event loop, ``loop`` if it is given, else one in a thread of its own.

    ``place`` is the store to consume from: a directory, the URL of a cluster, or an open store or backend, which stays
    open. With ``create=True`` a missing store is made, with ``store_config``. ``crons`` are the schedules of the
    application, which send while the consumer takes messages. ``client_id`` names this process among the members of its
    groups; the default has the host, the process id and a random part. Broadcast handlers keep their offsets under
    ``member_name``, which must be the same after a restart; the default is the given ``client_id``. ``tables`` are the
    tables of the application: they read the same backend while the consumer runs. ``hooks`` are its lifespans and
    middleware.

    When the process loses a thread of the library, the consumer ends by itself, so that other members get its queues,
    and :meth:`stop` raises ThreadLost. A process that is to end as a whole gives ``on_loss``, which is called instead,
    in the thread that ends; :attr:`loss` says what happened.

    Raises TypeError for settings of another kind, InvalidName for a client id that is empty, too long or not
    printable, and what :func:`rmqclient.backend.open_backend` raises.
    """

    def __init__(
        self,
        place: Place,
        handlers: Sequence[Handler],
        *,
        client_id: str | None = None,
        member_name: str | None = None,
        config: ConsumerConfig | None = None,
        crons: Sequence[Cron] = (),
        tables: AppTables | None = None,
        hooks: Hooks | None = None,
        loop: AbstractEventLoop | None = None,
        on_loss: Callable[[], object] | None = None,
        create: bool = False,
        store_config: StoreConfig | None = None,
    ) -> None:
        check_unpatched("a consumer with handlers")
        check_kind("config", config, ConsumerConfig)
        if loop is not None and not hasattr(loop, "call_soon_threadsafe"):
            raise TypeError(f"loop={loop!r}: give an event loop, such as asyncio.get_running_loop(), or None")
        self.client_id = default_client_id() if client_id is None else check_client_id(client_id)
        self._pid = os.getpid()
        self._backend = open_backend(place, store_config, create=create)
        self._members = self._backend.groups.memberships()
        self._crons = crons
        self._tables = tables
        self._cron_senders: list[CronSender] = []
        self._cron_threads: list[threading.Thread] = []
        self._cron_producers: list[Producer] = []
        self._sending_ended = threading.Event()
        self._member_name = member_name or client_id
        self._handlers = handlers
        self._config = config or ConsumerConfig()
        self._observers = observers_of(self._backend)
        if self._config.message_trace and handlers:
            self._observers.append(MessageTrace(self._backend, handlers[0].group))
        self.subscriptions: list[Subscription] = []
        """One per handler; empty before the start and after the end."""
        self._retry_topics: list[RetryTopic] = []
        self._complaints: dict[Membership, str] = {}
        self._held = False
        self._closing = threading.Event()
        self._is_closed = False
        self._ending = threading.RLock()
        self._callers = Callers(hooks, EventLoop(loop))
        self._life = ProcessLife(self._callers.hooks.life, self._callers.loop)
        self._losses = Losses(on_loss or self._end_lost)
        self._coordinator = GuardedThread(target=self._coordinate, name="rmq-coordinator")

    def start(self, on_ready: Callable[[], None] | None = None) -> None:
        """Join the groups, take queues and begin to deliver.

        Free queues are taken before this returns: a worker that is ready has its queues, and no message waits for a
        later look. ``on_ready`` is called after that, and before the first handler, which may end the process.

        Lifespans and start-up functions run first. Raises what they raise; SubscriptionMismatch, ClientIdInUse,
        TableFull, StoreBusy, LimitReached; HandlerError for a handler whose parameters cannot be filled. A broadcast
        handler raises HandlerError when the member has no name, and InvalidName. The consumer is closed then.
        """
        if self._tables is not None:
            self._tables.serve(self._backend)
        try:
            self._life.begin()
            self._join()
            self._step()
            if on_ready is not None:
                on_ready()
            self._losses.watch()
            self._deliver()
            self._coordinator.start()
            self._start_crons()
        except BaseException:
            self.close()
            raise

    def _deliver(self) -> None:
        for subscription in self.subscriptions:
            if self._held:
                subscription.delivery.hold()
            subscription.delivery.start()

    def _join(self) -> None:
        for handler in self._handlers:
            subscription = Subscription(
                self._backend,
                self._members,
                handler,
                self.client_id,
                self._config,
                self._callers,
                self._member_name,
                self._observers,
            )
            self.subscriptions.append(subscription)
        for group, deliveries in _retrying(self.subscriptions).items():
            retry_topic = RetryTopic(self._backend, self._members, group, deliveries, self.client_id, self._config)
            self._retry_topics.append(retry_topic)

    def _start_crons(self) -> None:
        if not self._crons:
            return
        producer = Producer(self._backend, group=CRON_GROUP, middleware=self._callers.hooks.send_middleware)
        self._cron_producers.append(producer)
        for cron in self._crons:
            sender = CronSender(self._backend, producer, cron)
            self._cron_senders.append(sender)
            name = f"rmq-cron-{cron.name}"
            thread = GuardedThread(target=sender.run, args=(self._sending_ended,), name=name)
            self._cron_threads.append(thread)
            thread.start()

    def hold(self) -> None:
        """Begin no further message until :meth:`resume`, and keep the queues; running handlers go on.

        Before :meth:`start`, the consumer starts so.
        """
        self._held = True
        for subscription in self.subscriptions:
            subscription.delivery.hold()

    def resume(self) -> None:
        """Begin messages again."""
        self._held = False
        for subscription in self.subscriptions:
            subscription.delivery.resume()

    def is_idle(self) -> bool:
        """Tell whether the groups have nothing to do until a message comes, or the time of one that is held back.

        True twice in a row means that it is so: other threads work meanwhile. Queues that other members have count as
        done when everything in them is committed. Raises as the backend.
        """
        if not all(subscription.delivery.is_idle() for subscription in self.subscriptions):
            return False
        return all(self._has_all(each) for each in self._joined)

    def _has_all(self, joined: Subscription | RetryTopic) -> bool:
        """Tell whether this consumer delivers from every queue of a topic in which there is something to do."""
        held, membership, backend = joined.rebalancer.delivered, joined.membership, self._backend
        try:
            others = [queue for queue in backend.topics.read_queues(membership.topic) if queue not in held]
            ends = {queue: backend.queues.span(queue).max_offset for queue in others}
            return all(
                (backend.groups.committed_offset(membership.group, each) or 0) >= end for each, end in ends.items()
            )
        except UnknownTopic:
            return True

    def stop_taking(self) -> None:
        """Begin no further message and send none of a schedule; running handlers go on."""
        self._sending_ended.set()
        clock.ring()
        for subscription in self.subscriptions:
            subscription.delivery.stop_taking()

    def drain(self, timeout_s: float) -> int:
        """Wait for the running handlers, and renew leases meanwhile; return how many still run when the time is up.

        A function of a schedule that is running counts, too.
        """
        deadline = time.monotonic() + timeout_s
        self._forgive()  # a busy machine may kill this process before the time is up
        left = sum(
            subscription.delivery.join(max(0.0, deadline - time.monotonic())) for subscription in self.subscriptions
        )
        for thread in self._cron_threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return left + sum(thread.is_alive() for thread in self._cron_threads)

    def stop(self, timeout: Duration = 30.0) -> int:
        """Take no more messages, let the running handlers end, and leave the groups.

        Return how many handlers still ran after ``timeout``, a timedelta or seconds: their messages are delivered
        again. Those that are ``async`` are cancelled; that is no failure of them, and they have another second, or two
        if one blocks their loop. The queue of a handler with an ``order`` goes to another member when that handler has
        ended, or this process: see :meth:`close`. Stopping twice, or in a forked child, does nothing: the consumer is
        its parent's. Raises as :meth:`close`, ThreadLost when the process has lost a thread of the library, so that the
        consumer had ended before, and HandlerError in a handler of this consumer, which would wait for itself.
        """
        if self._is_of_parent():
            return 0
        self._check_outside()
        self.stop_taking()
        left = self.drain(in_seconds("timeout", timeout))
        self.close()
        self._losses.check()
        return left

    @property
    def loss(self) -> Loss | None:
        """Which thread of the library this process has lost, and why; None when all is well."""
        return self._losses.first

    def tell_loss(self, listener: Callable[[], object]) -> None:
        """Call a function when a thread is lost, in that thread; at once if one was."""
        self._losses.tell(listener)

    def _end_lost(self) -> None:
        """Let other members have the queues, and leave the rest to :meth:`stop`."""
        self.stop_taking()
        GuardedThread(target=self._leave_lost, name="rmq-leaving").start()

    def _leave_lost(self) -> None:
        self.drain(_LOST_DRAIN_S)
        self.close()

    def close(self) -> None:
        """Leave the groups; other members take the queues over at once.

        Closing twice, or in a forked child, does nothing. Then the lifespans end, and the tables of the application are
        closed. Raises what a shutdown function raises, when all of that is done. While a handler with an ``order``
        still runs, its queue and what it needs are kept, and the rest is closed when it has ended; on a cluster the
        lock of its queue runs out instead.
        """
        if self._is_of_parent():
            return
        with self._ending:
            if not self._is_closed:
                self._is_closed = True
                self._end()

    def _is_of_parent(self) -> bool:
        """Tell whether this is a forked child, which has neither the threads nor the places in the groups."""
        return self._pid != os.getpid()

    def _end(self) -> None:
        self._losses.ignore()
        self.stop_taking()
        is_busy = self.counters.in_flight > 0
        late: list[Subscription] = []
        self._forgive()
        try:
            late = self._leave()
            self._callers.loop.cut_short(LAST_WORDS_S)
            self._life.end()
        finally:
            self._callers.loop.close(LAST_WORDS_S if is_busy else None)
            if self._tables is not None:
                self._tables.leave(self._backend)
            if late:
                look_every_s = self._config.liveness_interval_ms / 2000
                LateHandlers(self._backend, late, look_every_s, self._let_go).start()
            else:
                self._let_go()

    def _forgive(self) -> None:
        """Count no attempt of what runs if this process is killed, unless a lost thread ends it."""
        if self.loss is None:
            for subscription in self.subscriptions:
                subscription.delivery.forgive()

    def _check_outside(self) -> None:
        """Raise HandlerError when a handler of this consumer calls."""
        inside = any(subscription.delivery.is_here for subscription in self.subscriptions)
        if threading.current_thread().name == "rmq-event-loop":
            inside = log_fields().get("group") in {subscription.handler.group for subscription in self.subscriptions}
        if inside:
            raise HandlerError(
                "stop() waits for the running handlers, and one of them has called it: call stop_taking() there, or "
                "set an event, and call stop() where the consumer was started"
            )

    def _let_go(self) -> None:
        """Close what the handlers needed, and untie what holds each other, so that it goes with its last reference."""
        for retry_topic in self._retry_topics:
            retry_topic.let_go()
        self._retry_topics = []
        for producer in self._cron_producers:
            producer.close()
        self._members.close()
        for observer in self._observers:
            observer.close()
        self._backend.close()

    def _leave(self) -> list[Subscription]:
        """Leave the groups; return the subscriptions that stay, because a handler that keeps an order still runs."""
        self._closing.set()
        if self._coordinator.is_alive():
            self._members.bell.ring()
            self._coordinator.join()
        joined = self._joined
        self.subscriptions = []
        late: list[Subscription] = []
        for each in joined:
            if each.rebalancer.release_all():
                each.membership.leave()
            elif isinstance(each, Subscription) and each.rebalancer.stay_behind():
                late.append(each)
        return late

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def counters(self) -> ConsumerCounters:
        """What this process is doing now, and has done so far."""
        now = boottime()
        deliveries = [subscription.delivery for subscription in self.subscriptions]
        started = [delivery.longest_running_since(now) for delivery in deliveries]
        started += (calling := [sender.calling_since for sender in self._cron_senders])
        return ConsumerCounters(
            in_flight=sum(delivery.running for delivery in deliveries) + sum(map(bool, calling)),
            handled=sum(delivery.handled for delivery in deliveries),
            failed=sum(delivery.counters.failed for delivery in deliveries),
            message_started_ns=min((at for at in started if at), default=0),
            overdue=tuple(sender.name for sender in self._cron_senders if sender.is_overdue),
        )

    @property
    def queues(self) -> dict[str, tuple[MessageQueue, ...]]:
        """The queues held now, by ``topic@group``."""
        return {
            f"{subscription.handler.topic}@{subscription.handler.group}": subscription.rebalancer.queues
            for subscription in self.subscriptions
        }

    @property
    def _joined(self) -> list[Subscription | RetryTopic]:
        return [*self.subscriptions, *self._retry_topics]

    def _coordinate(self) -> None:
        bell = self._members.bell
        while not self._closing.is_set():
            heard = bell.heard()
            if self._is_replaced():
                return
            self._step()
            for subscription in self.subscriptions:
                subscription.delivery.add_up()
            if not self._closing.is_set():
                looks = [each.rebalancer.next_look_ms for each in self._joined]
                bell.wait(heard, min(looks, default=self._config.liveness_interval_ms) / 1000)

    def _is_replaced(self) -> bool:
        """Take no more messages when the store that has them is not at its path any more; whoever found it said so."""
        try:
            self._backend.check_usable()
        except StoreReplaced:
            self.stop_taking()
            return True
        return False

    def _step(self) -> None:
        for each in self._joined:
            try:
                each.rebalancer.step()
                self._complaints.pop(each.membership, None)
            except (QueueError, ValueError, OSError) as error:  # the next look tries again
                self._complain(each.membership, error)
            except Exception as error:  # noqa: BLE001 - the same; a strategy is the application's
                self._complain(each.membership, error, exc_info=True)

    def _complain(self, membership: Membership, error: Exception, *, exc_info: bool = False) -> None:
        """Say why a rebalance fails: once, as it is tried again twenty times a second."""
        text = repr(error)
        if self._complaints.get(membership) != text:
            self._complaints[membership] = text
            _log.error("rebalance of group %s failed, trying again: %s", membership.group, error, exc_info=exc_info)


def _retrying(subscriptions: Sequence[Subscription]) -> dict[str, list[ConcurrentDelivery]]:
    """Return, by group, the deliveries whose failed messages come back through the retry topic."""
    found: dict[str, list[ConcurrentDelivery]] = {}
    for each in subscriptions:
        if isinstance(each.delivery, ConcurrentDelivery) and not each.handler.broadcast:
            found.setdefault(each.handler.group, []).append(each.delivery)
    return found
