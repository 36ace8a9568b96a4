"""A name server and brokers in the process of a test, which answer as a script says.

::

    with scripted_cluster({RequestCode.QUERY_CONSUMER_OFFSET: lambda request: response(request, offset=7)}) as cluster:
        client = ...(f"rocketmq://{cluster.address}")
        ...
        assert cluster.asked(RequestCode.HEART_BEAT)

A script maps a code to a function from the request to its answer; None leaves the request unanswered, and
:meth:`ScriptedCluster.answer` may answer it later. What a script does not name is answered by ``standard_answers``:
routes, heartbeats, members, locks and offsets. Oneway requests are recorded, and never answered.

Each broker listens on a port of its own of 127.0.0.1, and the first one is the name server, too. An exception in a
function of the script is raised where the ``with`` block ends. A connection ends after ``REQUESTS_AT_MOST`` requests.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import orjson

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.errors import FrameError
from rmqclient.remoting.frame import ONEWAY, Frame, FrameReader, encode
from rmqclient.remoting.table import request
from tests.support.cluster.standard_answers import Cluster, standard_answer

Script = Mapping[RequestCode, Callable[[Frame], Frame | None]]

REQUESTS_AT_MOST: Final = 100_000
PATIENCE_S: Final = 10.0


@contextmanager
def scripted_cluster(
    script: Script | None = None,
    *,
    topics: Mapping[str, int] | None = None,
    brokers: Sequence[str] = ("broker-a",),
    version: int = 407,
    tls: ssl.SSLContext | None = None,
    notifies: bool = False,
) -> Iterator[ScriptedCluster]:
    """Run a cluster for the length of a block.

    ``topics`` maps the topics to their number of queues on each broker; None lets every topic exist, with 4 queues.
    ``version`` is what heartbeats are answered with. ``tls`` wraps every connection. If ``notifies``, brokers tell the
    members of a group when one joins or leaves, as real ones do.
    """
    cluster = ScriptedCluster(script or {}, topics, brokers, version, tls, notifies)
    try:
        yield cluster
    finally:
        cluster.close()
    if cluster.failures:
        raise cluster.failures[0]


class ScriptedCluster:
    """What a test sees of the cluster: where it listens, what it was asked, and what it can send by itself."""

    def __init__(
        self,
        script: Script,
        topics: Mapping[str, int] | None,
        brokers: Sequence[str],
        version: int,
        tls: ssl.SSLContext | None,
        notifies: bool,
    ) -> None:
        self.script = {code.value: answer for code, answer in script.items()}
        """May be changed while the cluster runs."""
        self.requests: list[Frame] = []
        """All requests in the order of their arrival, those of oneway included."""
        self.answers: list[Frame] = []
        """What clients answered to requests of the brokers."""
        self.failures: list[BaseException] = []
        self._version = version
        self._tls = tls
        self._notifies = notifies
        self._asked_on: dict[int, Connection] = {}  # by the identity of a request; all of them are kept
        self._connections: list[Connection] = []
        self._changed = threading.Condition()
        self._listeners = {name: socket.create_server(("127.0.0.1", 0)) for name in brokers}
        self.brokers = {name: f"127.0.0.1:{listener.getsockname()[1]}" for name, listener in self._listeners.items()}
        """The address of each broker."""
        self.address = next(iter(self.brokers.values()))
        """The address of the name server."""
        self.state = Cluster(topics, self.brokers)
        """What the standard answers know: topics, members, locks and offsets."""
        for name in self._listeners:
            self._listen(name)

    def asked(self, code: RequestCode, broker: str | None = None) -> list[Frame]:
        """Return the requests with this code so far, of all brokers or of one."""
        with self._changed:
            of_code = [request for request in self.requests if request.code == code]
            return [request for request in of_code if broker in {None, self.broker_of(request)}]

    def broker_of(self, request: Frame) -> str:
        """Return the broker that got a request."""
        return self._asked_on[id(request)].broker

    def wait_for(
        self, code: RequestCode, count: int = 1, *, broker: str | None = None, timeout_s: float = PATIENCE_S
    ) -> list[Frame]:
        """Return the requests with this code as soon as there are ``count``. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.asked(code, broker)) >= count, timeout_s):
                came = [request.code for request in self.requests]
                raise TimeoutError(f"{len(self.asked(code, broker))} of {count} {code.name} came: {came[-20:]}")
        return self.asked(code, broker)

    def wait_for_answers(self, count: int = 1, *, timeout_s: float = PATIENCE_S) -> list[Frame]:
        """Return the answers of clients to :meth:`push` as soon as there are ``count``. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.answers) >= count, timeout_s):
                raise TimeoutError(f"{len(self.answers)} of {count} answers came")
            return list(self.answers)

    def answer(self, response: Frame) -> None:
        """Answer a request that a function of the script left unanswered: the latest one of this opaque."""
        with self._changed:
            owner = next(line for line in reversed(self._connections) if response.opaque in line.unanswered)
        owner.send(response)

    def answer_to(self, asked: Frame, response: Frame) -> None:
        """Answer this request, which a function of the script left unanswered, on the connection that it came from."""
        self._asked_on[id(asked)].send(response)

    def push(self, question: Frame, broker: str | None = None) -> int:
        """Send a request of a broker to every connection that sent a heartbeat; return to how many."""
        with self._changed:
            members = [line for line in self._connections if line.is_member and broker in {None, line.broker}]
        for line in members:
            line.send(question)
        return len(members)

    def hang_up(self, broker: str | None = None) -> None:
        """Close the connections, of all brokers or of one. New ones are accepted."""
        with self._changed:
            lines = [line for line in self._connections if broker in {None, line.broker}]
        for line in lines:
            line.close()

    def stop(self, broker: str) -> None:
        """Close the connections of a broker and let nobody connect again."""
        close(self._listeners[broker])
        self.hang_up(broker)

    def start(self, broker: str) -> None:
        """Let a broker that was stopped listen again, where it did."""
        host, _, port = self.brokers[broker].partition(":")
        self._listeners[broker] = socket.create_server((host, int(port)))
        self._listen(broker)

    def close(self) -> None:
        """Stop all brokers and wait for the threads of their connections."""
        for name in self._listeners:
            self.stop(name)
        with self._changed:
            lines = list(self._connections)
        for line in lines:
            line.join(PATIENCE_S)

    def _listen(self, broker: str) -> None:
        threading.Thread(target=self._accept, args=(broker, self._listeners[broker]), daemon=True).start()

    def _accept(self, broker: str, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                line = Connection(self, broker, peer, self._tls)
                with self._changed:
                    self._connections.append(line)
                    line.start()

    def received(self, line: Connection, frame: Frame) -> None:
        """Record a frame of a client, and send the answer to a request."""
        with self._changed:
            (self.answers if frame.is_response else self.requests).append(frame)
            self._asked_on[id(frame)] = line
            line.requests.append(frame)
            line.unanswered.add(frame.opaque)
            line.is_member |= frame.code == RequestCode.HEART_BEAT
            self._changed.notify_all()
        if frame.is_response:
            return
        answer = self._answer_to(frame, line)
        if answer is not None and not frame.is_oneway:
            line.send(answer)

    def _answer_to(self, request: Frame, line: Connection) -> Frame | None:
        scripted = self.script.get(request.code)
        if scripted is not None:
            return scripted(request)
        with self._changed:
            before = self.state.members_by_group()
            answer = standard_answer(self.state, request, line.broker)
            if request.code == RequestCode.HEART_BEAT:
                answer.version = self._version
                line.client_ids.add(orjson.loads(request.body)["clientID"])
        self._notify(before)
        return answer

    def hung_up(self, line: Connection) -> None:
        """Forget the members of groups that were known by a connection, unless another one of theirs is open."""
        with self._changed:
            before = self.state.members_by_group()
            line.is_member = False
            left = line.client_ids - {one for other in self._connections if other.is_member for one in other.client_ids}
            for members in self.state.members.values():
                members.difference_update(left)
        self._notify(before)

    def _notify(self, before: dict[str, frozenset[str]]) -> None:
        """Tell the members of each group that changed since ``before``. [NOTIFY_CONSUMER_IDS_CHANGED]"""
        if not self._notifies:
            return
        with self._changed:
            after = self.state.members_by_group()
            told = [
                (line, group)
                for group, members in after.items()
                if members != before.get(group)
                for line in self._connections
                if line.is_member and line.client_ids & members
            ]
        for line, group in told:
            notice = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup=group)
            notice.flag = ONEWAY
            line.send(notice)


class Connection(threading.Thread):
    """One connection of a client to a broker."""

    def __init__(self, cluster: ScriptedCluster, broker: str, peer: socket.socket, tls: ssl.SSLContext | None) -> None:
        super().__init__(daemon=True)
        self.broker = broker
        self.requests: list[Frame] = []
        self.unanswered: set[int] = set()
        self.is_member = False
        self.client_ids: set[str] = set()
        self._cluster = cluster
        self._peer = peer
        self._tls = tls
        self._sending = threading.Lock()

    def run(self) -> None:
        """Read until either side closes."""
        try:
            if self._tls is not None:
                self._peer = self._tls.wrap_socket(self._peer, server_side=True)
            self._read()
        except (OSError, FrameError):
            pass  # the client hung up, or sent what a server hangs up for
        except Exception as error:  # noqa: BLE001 - the test sees it where its block ends
            self._cluster.failures.append(error)
        finally:
            self._cluster.hung_up(self)
            self._peer.close()

    def _read(self) -> None:
        reader = FrameReader()
        while len(self.requests) < REQUESTS_AT_MOST and (data := self._peer.recv(1 << 16)):
            for frame in reader.feed(data):
                self._cluster.received(self, frame)

    def send(self, frame: Frame) -> None:
        """Send a frame; a connection that is closed takes none."""
        self.unanswered.discard(frame.opaque)
        with self._sending, suppress(OSError):
            self._peer.sendall(encode(frame))

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)


def close(listener: socket.socket) -> None:
    """Close a listener on which a thread waits: that thread gets an OSError."""
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
