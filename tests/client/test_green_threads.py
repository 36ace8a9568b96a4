"""Processes whose threads gevent or eventlet has made green, as `gunicorn -k gevent` does, send as any other."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, PullConsumer
from rmqclient.store.inspect.verify import verify

GEVENT = """
import sys
from gevent import monkey, sleep, spawn
monkey.patch_all()
def all_of(works): return [each.get() for each in [spawn(work) for work in works]]
"""
EVENTLET = """
import sys, warnings
warnings.simplefilter("ignore")
import eventlet
eventlet.monkey_patch()
from eventlet import sleep, spawn
def all_of(works): return [each.wait() for each in [spawn(work) for work in works]]
"""
SENDS = """
from rmqclient import Message, Producer, PullConsumer
with Producer(sys.argv[1]) as producer:
    ticks = []
    def tick():
        while True:
            ticks.append(1)
            sleep(0)
    spawn(tick)
    def work(first):
        for number in range(first, first + 50):
            producer.send(Message("orders", b"%d" % number))
            sleep(0)
    all_of([lambda first=first: work(first) for first in range(0, 500, 50)])
    producer.send(Message("orders", b"later"), delay=0.3)
    with PullConsumer(sys.argv[1], group="reader") as consumer:
        while not any(message.body == b"later" for message in consumer.messages("orders", wait=0)):
            sleep(0.01)
    print("sent", len(ticks) >= 50, flush=True)
    sys.stdin.read(1)
"""
REQUESTS = """
from rmqclient import Message, Producer
with Producer(sys.argv[1]) as producer:
    def asked(number): return lambda: producer.request(Message("prices", b"%d" % number), timeout=60)
    print(*sorted(int(reply.body) for reply in all_of(map(asked, range(5)))))
    print(int(producer.request_async(Message("prices", b"5"), timeout=60).result().body))
"""
REFUSED = """
from rmqclient import App
from rmqclient.errors import StoreUnusable
try:
    with App(sys.argv[1]).running(): pass
except StoreUnusable as error:
    print(error)
"""
LATE = """
import sys
from rmqclient import Producer
from rmqclient.errors import StoreUnusable
from gevent import monkey
Producer(sys.argv[1]).close()
monkey.patch_all()
try:
    Producer(sys.argv[1])
except StoreUnusable as error:
    print(error)
"""
WEB = """
import gevent
from rmqclient import Message, Producer
producer = Producer({root!r})
def app(environ, start):
    producer.send(Message("orders", environ["QUERY_STRING"].encode()))
    gevent.sleep(0.01)
    start("200 OK", [("Content-Type", "text/plain"), ("Connection", "close")])
    return [b"sent"]
"""


def ran(program: str, root: Path | str) -> list[str]:
    """Run a program to its end; return the lines it printed."""
    command = [sys.executable, "-c", program, str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()


def orders(root: Path) -> list[bytes]:
    """Return every order of a store."""
    with PullConsumer(root, group="reader") as consumer:
        return [bytes(message.body) for message in consumer.messages("orders", wait=0)]


@pytest.fixture(params=["gevent", "eventlet"])
def patches(request: pytest.FixtureRequest) -> str:
    """The first lines of a program that one of the libraries patches."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"no {request.param}: make install-all brings it")
    return {"gevent": GEVENT, "eventlet": EVENTLET}[request.param]


@pytest.fixture
def gevent() -> None:
    """Skip without gevent."""
    if importlib.util.find_spec("gevent") is None:
        pytest.skip("no gevent: make install-all brings it")


def test_green_threads_send_and_deliver_what_waits_while_other_processes_use_the_store(
    patches: str, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    command = [sys.executable, "-c", patches + SENDS, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"sent True\n"
        with Producer(root) as producer:
            producer.send(Message("orders", b"another"))
        child.stdin.write(b"x")
        child.stdin.close()
        assert child.wait(60) == 0
    assert sorted(orders(root)) == sorted([*(b"%d" % number for number in range(500)), b"later", b"another"])
    assert verify(root) == []


def test_green_threads_get_replies(patches: str, tmp_path: Path) -> None:
    app = App(tmp_path / "store")

    @app.handler("prices", group="pricing", replies=True)
    def double(body: bytes) -> bytes:
        return b"%d" % (2 * int(body))

    with app.running():
        assert ran(patches + REQUESTS, tmp_path / "store") == ["0 2 4 6 8", "10"]


@pytest.mark.parametrize("place", ["store", "rocketmq://127.0.0.1:9"])
def test_what_needs_more_real_threads_is_refused(patches: str, tmp_path: Path, place: str) -> None:
    place = str(tmp_path / place) if place == "store" else place
    [told] = ran(patches + REFUSED, place)
    assert "monkey.patch_all(thread=False)" in told
    assert not (tmp_path / "store").exists()


def test_a_process_that_is_patched_after_it_had_a_store_is_refused(gevent: None, tmp_path: Path) -> None:
    [told] = ran(LATE, tmp_path / "store")
    assert "gevent" in told
    with Producer(tmp_path / "store") as producer:
        producer.send(Message("orders", b"1"))


def test_gunicorn_with_gevent_sends(gevent: None, tmp_path: Path) -> None:
    if importlib.util.find_spec("gunicorn") is None:
        pytest.skip("no gunicorn: make install-all brings it")
    (tmp_path / "web.py").write_text(WEB.format(root=str(tmp_path / "store")))
    with served(tmp_path) as address, ThreadPoolExecutor(10) as pool:
        sent = pool.map(lambda number: urllib.request.urlopen(f"{address}/?{number}", timeout=60).read(), range(100))
        assert set(sent) == {b"sent"}
    assert sorted(map(int, orders(tmp_path / "store"))) == list(range(100))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve ``web.py`` of a folder by two gevent workers; yield the address."""
    command = [sys.executable, "-m", "gunicorn", "-k", "gevent", "-w", "2", "--bind", "127.0.0.1:0", "web:app"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield next(line.split("Listening at: ")[1].split()[0] for line in server.stderr if "Listening at" in line)
        finally:
            server.terminate()
            server.communicate(timeout=60)
    assert server.returncode == 0
