"""Live: one sampler for all clients, ten minutes of samples, and the stream of events.

A thread of the process looks at the store once a second. Charts begin with the history of the store, go on with the
samples that were kept since its last record, and then with events. A store with so many groups that a look takes long
is looked at less often, so the thread takes a twentieth of a core at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import orjson

from rmqclient.dashboard.looking.sample import Kept, Moment, Sampling
from rmqclient.errors import QueueError
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

CLIENTS_AT_MOST = 20
KEPT = 600
"""Samples."""
_INTERVAL_S = 1.0
_SHARE_AT_MOST = 0.05
_QUIET_S = 15.0
_RETRY_MS = 2_000

_log = Log("rmqclient.dashboard")


class TooManyClients(Exception):
    """So many pages are open that this one gets no events."""


@dataclass(frozen=True, slots=True)
class _Client:
    loop: asyncio.AbstractEventLoop
    fresh: asyncio.Event

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop has ended
            self.loop.call_soon_threadsafe(self.fresh.set)


class Live:
    """Samples of one store. Begins at the first request and ends with :meth:`close`; safe for threads."""

    def __init__(self, sampling: Callable[[], Sampling]) -> None:
        self._begin_sampling = sampling
        self._samples: deque[Kept] = deque(maxlen=KEPT)
        self._latest: Moment | None = None
        self._clients: set[_Client] = set()
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the sampler unless it runs."""
        with self._lock:
            if self._thread is None and not self._ending.is_set():
                self._thread = GuardedThread(target=self._run, name="rmq-dashboard")
                self._thread.start()

    def close(self) -> None:
        """End the sampler and every stream. Closing twice does nothing."""
        self._ending.set()
        self._wake()
        if self._thread is not None:
            self._thread.join()

    def samples(self) -> list[Kept]:
        """Return what was kept, the oldest first."""
        return list(self._samples)

    def latest(self) -> Moment | None:
        """Return the last sample; None before the first."""
        return self._latest

    def stream(self, group: str = "") -> AsyncIterator[bytes]:
        """Return the events from now on, as they go to a browser, with the rates and the lag of one group or of all.

        They end at once when the last place has just gone. A client has its place while its events are read. Raises
        TooManyClients.
        """
        if len(self._clients) >= CLIENTS_AT_MOST:
            raise TooManyClients(f"{CLIENTS_AT_MOST} pages get live updates already: close one of them")
        return self._events(_Client(asyncio.get_running_loop(), asyncio.Event()), group)

    async def _events(self, client: _Client, group: str) -> AsyncIterator[bytes]:
        with self._lock:
            if len(self._clients) >= CLIENTS_AT_MOST:
                return
            self._clients.add(client)
        try:
            yield b"retry: %d\n\n" % _RETRY_MS
            seen = None
            while not self._ending.is_set():
                client.fresh.clear()
                latest = self.latest()
                if latest is not None and latest is not seen:
                    seen = latest
                    yield b"data: %s\n\n" % orjson.dumps(latest.shown(group))
                    continue
                try:
                    await asyncio.wait_for(client.fresh.wait(), _QUIET_S)
                except TimeoutError:
                    yield b": nothing new\n\n"  # a proxy ends what is silent
        finally:
            with self._lock:
                self._clients.discard(client)

    def _run(self) -> None:
        sampling: Sampling | None = None
        pause = 0.0
        while not self._ending.wait(pause):
            begun = time.thread_time()
            try:
                if sampling is None:
                    sampling = self._begin_sampling()
                    sampling.take()  # the first look knows no rates
                else:
                    self._keep(sampling.take())
            except (QueueError, OSError) as error:
                _log.warning("the store cannot be looked at: %s", error)
                _close(sampling)
                sampling = None
            self._wake()
            pause = max(_INTERVAL_S, (time.thread_time() - begun) / _SHARE_AT_MOST)
        _close(sampling)

    def _keep(self, moment: Moment) -> None:
        self._samples.append(Kept(moment, self._samples[-1] if self._samples else None))
        self._latest = moment

    def _wake(self) -> None:
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            client.wake()


def _close(sampling: Sampling | None) -> None:
    if sampling is not None:
        sampling.close()
