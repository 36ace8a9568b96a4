"""Listener: answers Prometheus, and probes of Kubernetes, over HTTP, from a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from rmqclient.metrics.source import Source
from rmqclient.metrics.text import CONTENT_TYPE, exposition
from rmqclient.store import take_no_signals
from rmqclient.store.errors import QueueError
from rmqclient.store.native_threads import threading
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

Probe = Callable[[], tuple[bool, str]]
"""Tells whether all is well, and the state in words. May raise QueueError and OSError, which count as not well."""

PATH = "/metrics"
_PLAIN = "text/plain; charset=utf-8"
_TIMEOUT_S = 5.0
"""How long a client may take to send its request."""


class Listener:
    """Serves ``/metrics`` of one place, and probes, such as ``/live`` and ``/ready``; a context manager.

    ``source`` reads the place; ``address`` is where it listens, and port 0 takes a free one. A scrape of a store that
    cannot be read is answered with 503 and the reason. A probe is answered with 200 when all is well, otherwise with
    503, and with the words. Raises OSError for an address that cannot be had.
    """

    def __init__(self, source: Source, address: tuple[str, int], probes: Mapping[str, Probe] | None = None) -> None:
        self._source = source
        self._probes = probes or {}
        self._reading = threading.Lock()
        self._server = _Server(address, self)
        self._thread = GuardedThread(target=self._serve, name="rmq-metrics")

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return str(host), port

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering. After that, no thread is left."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._source.close()

    def _serve(self) -> None:
        take_no_signals()
        self._server.serve_forever()

    def text(self) -> str:
        """Return the metrics as text. Raises what :meth:`Source.read` raises."""
        with self._reading:
            return exposition(self._source.read())

    def answer(self, path: str) -> tuple[HTTPStatus, str, str]:
        """Return the answer to a request for this path: its status, its text, and the type of the text."""
        probe = self._probes.get(path)
        try:
            if path == PATH:
                return HTTPStatus.OK, self.text(), CONTENT_TYPE
            if probe is None:
                return HTTPStatus.NOT_FOUND, f"ask for {', '.join((PATH, *self._probes))}\n", _PLAIN
            is_well, words = probe()
        except (QueueError, OSError) as error:
            _log.warning("%s cannot be answered: %s", path, error)
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{type(error).__name__}: {error}\n", _PLAIN
        return HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE, f"{words}\n", _PLAIN

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], listener: Listener) -> None:
        super().__init__(address, _Request)
        self.listener = listener


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = _TIMEOUT_S

    def do_GET(self) -> None:
        """Answer with the metrics, or to a probe."""
        status, text, content_type = self.server.listener.answer(self.path.partition("?")[0])
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name of the base class
        """Say nothing about each scrape."""
