"""Reads: the ways in which the records of one answer to a pull can get from the log into a socket.

=================  =================================================================================================
copy               what the server does: the kernel extension copies the records, checks each CRC, puts in the address
                   of the broker, and one ``send`` writes header and body
copy, unchecked    the same bytes copied from the mapping by ``bytes.join``, and one ``send``
writev             one ``sendmsg`` of the header and of a piece of the mapping for each record
sendfile           a ``send`` of the header, and a ``sendfile`` for each record
sendfile, a range  a ``send`` of the header, and one ``sendfile``, for as many bytes that stand together in the log:
                   what replication and archives would send
=================  =================================================================================================

The records of a queue do not stand together: seven other queues got a message between any two. *Cold* means that the
kernel of the host had dropped the pages of the log. With TLS nothing but a copy can be encrypted, so all ways but the
first differ only in how they get their bytes. Processor time of the sending thread is measured, which on loopback
includes the kernel's work for the receiver.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Benchmark, Samples, Size, in_bytes, scratch
from rmqclient import Message, Producer
from rmqclient.broker.net.tls import Tls
from rmqclient.broker.settings import TlsSettings
from rmqclient.remoting.frame import Frame, encode
from rmqclient.store import MessageQueue, MessageStore, TagSet, open_store

TOPIC = "bench"
WAYS = ("copy", "copy, unchecked", "writev", "sendfile", "sendfile, a range")
_QUEUES = 8
_MOST_MESSAGES = 32
_MOST_BYTES = 256 * 1024
_HOST = bytes((10, 0, 0, 7, 0, 0, 0x26, 0x94))
_EVERYTHING = TagSet(())
_FIELDS = {"suggestWhichBrokerId": "0", "nextBeginOffset": "32", "minOffset": "0", "maxOffset": "100000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Sizes of bodies, bytes of the log, and number of turns."""

    repetitions: int
    log_bytes: int
    """Bytes of the messages of all queues, for each size of bodies."""
    body_bytes: tuple[int, ...] = (100, 1 << 10, 10 << 10, 64 << 10, 256 << 10, 1 << 20)


@dataclass(frozen=True, slots=True)
class Pull:
    """One answer: where its records stand in the log, by file and position."""

    offset: int
    records: list[tuple[Path, int, int]]

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return sum(size for _, _, size in self.records)


Way = Callable[[socket.socket, Pull], None]


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure everything once in each turn."""
    samples.note(
        f"Each answer has {_MOST_MESSAGES} messages or {_MOST_BYTES >> 10} KiB, and one message at least. Figures are "
        "processor time of the sending thread for one answer, over loopback; another thread reads at the other end."
    )
    for body_bytes in parameters.body_bytes:
        with scratch(directory) as root:
            _fill(root / "store", body_bytes, parameters.log_bytes)
            for _ in range(parameters.repetitions):
                _measure(root / "store", body_bytes, samples)


def _fill(root: Path, body_bytes: int, log_bytes: int) -> None:
    body = os.urandom(body_bytes)
    with open_store(root) as store, Producer(store) as producer:
        store.topics.create(TOPIC, _QUEUES)
        for _ in range(max(4 * _QUEUES, log_bytes // body_bytes)):
            producer.send(Message(TOPIC, body))


def _measure(root: Path, body_bytes: int, samples: Samples) -> None:
    case = in_bytes(body_bytes) if body_bytes < 1 << 20 else f"{body_bytes >> 20} MiB"
    for is_cold in (True, False):
        for name in WAYS:
            if is_cold:
                _drop_pages(root)
            with open_store(root, housekeeping=False) as store:
                pulls, ways = _pulls(store), _Ways(store)
                kind = "cold" if is_cold else "warm"
                samples.add(f"{name}, {kind}", case, "µs", _time(ways.by_name[name], pulls, with_tls=False))
                if not is_cold and not name.startswith("sendfile"):
                    samples.add(f"{name}, TLS", case, "µs", _time(ways.by_name[name], pulls, with_tls=True))
                ways.close()
                del ways


def _pulls(store: MessageStore) -> list[Pull]:
    """Return the answers to a consumer that reads one queue to its end. The entries are read, the log is not."""
    queue = MessageQueue(TOPIC, 0)
    entries, files = store.consume_queues[queue], store.log_files
    found, offset, end = [], 0, store.topics.max_offset(queue)
    while offset < end:
        records: list[tuple[Path, int, int]] = []
        left = _MOST_BYTES
        for number in range(offset, min(end, offset + _MOST_MESSAGES)):
            entry = entries.entry(number)
            if records and entry.size > left:
                break
            base = files.base_of(entry.commit_log_offset)
            records.append((files.path(base), entry.commit_log_offset - base, entry.size))
            left -= entry.size
        found.append(Pull(offset, records))
        offset += len(records)
    return found


class _Ways:
    """The ways, over one open store."""

    def __init__(self, store: MessageStore) -> None:
        self._reader = store.grants.record_reader(MessageQueue(TOPIC, 0))
        self._files = store.log_files
        self._descriptors: dict[Path, int] = {}
        self._views: dict[Path, memoryview] = {}
        self.by_name: dict[str, Way] = dict(
            zip(WAYS, (self.copy, self.join, self.writev, self.sendfile, self.send_range), strict=True)
        )

    def copy(self, peer: socket.socket, pull: Pull) -> None:
        body, *_ = self._reader.read(
            pull.offset,
            _EVERYTHING,
            most_messages=_MOST_MESSAGES,
            most_bytes=_MOST_BYTES,
            most_looked_at=1_000,
            store_host=_HOST,
        )
        peer.sendall(_answer(body))

    def join(self, peer: socket.socket, pull: Pull) -> None:
        peer.sendall(_answer(b"".join([self._piece(*record) for record in pull.records])))

    def writev(self, peer: socket.socket, pull: Pull) -> None:
        pieces = [memoryview(_answer(b"")), *(self._piece(*record) for record in pull.records)]
        sent = 0 if isinstance(peer, ssl.SSLSocket) else peer.sendmsg(pieces)
        for each in pieces:
            if sent < len(each):
                peer.sendall(each[sent:])
            sent = max(0, sent - len(each))

    def sendfile(self, peer: socket.socket, pull: Pull) -> None:
        peer.send(_answer(b""), socket.MSG_MORE)
        for path, position, size in pull.records:
            _sendfile(peer, self._descriptor(path), position, size)

    def send_range(self, peer: socket.socket, pull: Pull) -> None:
        path, position, _ = pull.records[0]
        peer.send(_answer(b""), socket.MSG_MORE)
        _sendfile(peer, self._descriptor(path), min(position, self._files.file_bytes - pull.size), pull.size)

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def _piece(self, path: Path, position: int, size: int) -> memoryview:
        if path not in self._views:
            self._views[path] = memoryview(self._files.mapping(int(path.name)))
        return self._views[path][position : position + size]

    def _descriptor(self, path: Path) -> int:
        if path not in self._descriptors:
            self._descriptors[path] = os.open(path, os.O_RDONLY)
        return self._descriptors[path]


def _answer(body: bytes) -> bytes:
    return encode(Frame(0, _FIELDS, body, opaque=7, flag=1, remark="FOUND"))


def _sendfile(peer: socket.socket, descriptor: int, position: int, size: int) -> None:
    end = position + size
    while position < end:
        position += os.sendfile(peer.fileno(), descriptor, position, end - position)


def _time(way: Way, pulls: list[Pull], *, with_tls: bool) -> float:
    """Return the processor time of one answer, in µs."""
    with _receiver(with_tls=with_tls) as peer:
        begun = time.thread_time_ns()
        for pull in pulls:
            way(peer, pull)
        return (time.thread_time_ns() - begun) / len(pulls) / 1000


@contextmanager
def _receiver(*, with_tls: bool) -> Iterator[socket.socket]:
    """Connect two sockets of loopback; a thread reads all that comes to the other one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    thread = threading.Thread(target=_drain, args=(far, with_tls))
    thread.start()
    if with_tls:
        near = Tls(TlsSettings()).context().wrap_socket(near, server_side=True)
    try:
        yield near
    finally:
        near.shutdown(socket.SHUT_RDWR)
        near.close()
        thread.join()


def _drain(far: socket.socket, with_tls: bool) -> None:
    if with_tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        far = context.wrap_socket(far)
    buffer = bytearray(1 << 20)
    with far, suppress(OSError):
        while far.recv_into(buffer):
            pass


def _drop_pages(root: Path) -> None:
    """Let the kernel of the host forget the log, which no process has open."""
    for path in (root / "commitlog").iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


BENCHMARK = Benchmark(
    name="serve-reads",
    title="Answers to pulls of the server",
    parameters={
        Size.FULL: Parameters(repetitions=5, log_bytes=256 << 20),
        Size.QUICK: Parameters(repetitions=1, log_bytes=64 << 20),
        Size.SMALLEST: Parameters(repetitions=1, log_bytes=1 << 20, body_bytes=(100, 10 << 10)),
    },
    run=run,
)
