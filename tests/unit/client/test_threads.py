"""Threads of a worker, read from what faulthandler wrote: where the application stands, in a sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rmqclient
from rmqclient.admin.threads import Frame, began_s, source_of, standing, threads_in
from rmqclient.store import MemberInfo, MessageQueue
from rmqclient.store.observe.observation import Call

PACKAGE = Path(rmqclient.__file__).parent
IDLE = f"""\
Thread 0x01 (most recent call first):
  File "{PACKAGE}/delivery/turns.py", line 129 in take
  File "/usr/lib/python3.12/threading.py", line 982 in run
"""
PLAIN = """\
Thread 0x02 [mine] (most recent call first):
  File "/srv/shop/cache.py", line 8 in refresh
  File "/usr/lib/python3.12/threading.py", line 982 in run
"""
CALLING = f"""\
Current thread 0x03 (most recent call first):
  File "/usr/lib/python3.12/ssl.py", line 1041 in read
  File "/srv/venv/lib/python3.12/site-packages/bank/net.py", line 3 in ask
  File "/srv/shop/charge.py", line 41 in charge
  File "/srv/shop/handlers.py", line 9 in on_order
  File "{PACKAGE}/delivery/runner.py", line 100 in run
  File "{PACKAGE}/delivery/delivery.py", line 225 in _run
"""
LIBRARY_ALONE = f"""\
Thread 0x04 (most recent call first):
  File "/usr/lib/python3.12/asyncio/base_events.py", line 641 in run_forever
  File "{PACKAGE}/delivery/runner.py", line 100 in run
"""
TWO = "orders/0/12 of group thumbnails for 18 min, orders/0/13 of group thumbnails for 4 s"
ELSEWHERE = "no thread is in code of the application: an async handler waits, or a library works for it"


def call(offset: int, age_s: float) -> Call:
    member = MemberInfo(0, 1, "thumbnails", "orders", "me", 1, "*")
    return Call("thumbnails", MessageQueue("orders", 0), offset, offset, 1, age_s, member)


def test_the_thread_that_calls_a_handler_comes_first_then_others_of_the_application() -> None:
    threads = threads_in(f"{IDLE}\n{PLAIN}\n{CALLING}")
    assert [each.ident for each in threads] == ["0x03", "0x02", "0x01"]
    assert [each.has_call for each in threads] == [True, False, False]


def test_a_thread_stands_in_the_most_recent_call_of_the_application_not_of_a_library() -> None:
    (thread,) = threads_in(CALLING)
    assert [frame.is_own for frame in thread.frames] == [False, False, True, True, False, False]
    assert thread.stands_in == Frame("/srv/shop/charge.py", 41, "charge", is_own=True)


@pytest.mark.parametrize(
    ("stacks", "calls", "said"),
    [
        (
            (IDLE, CALLING),
            (call(12, 1_080.0),),
            "worker-3 stands in charge.py:41 (charge) for 18 min, with message orders/0/12 of group thumbnails",
        ),
        (
            (CALLING, CALLING),
            (call(12, 1_080.0), call(13, 4.0)),
            f"worker-3 stands in charge.py:41 (charge), with messages {TWO}",
        ),
        ((IDLE,), (), "worker-3 runs no message"),
        (
            (LIBRARY_ALONE,),
            (call(12, 5.0),),
            f"worker-3 runs orders/0/12 of group thumbnails for 5 s; {ELSEWHERE}",
        ),
    ],
)
def test_where_a_worker_stands_is_said_in_a_sentence(
    stacks: tuple[str, ...], calls: tuple[Call, ...], said: str
) -> None:
    assert standing("worker-3", threads_in("\n".join(stacks)), calls) == said


def test_the_line_of_a_file_that_was_written_after_the_process_began_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "charge.py"
    path.write_text("first\n    second()\n")
    frame, began = Frame(str(path), 2, "charge", is_own=True), began_s(os.getpid())
    os.utime(path, (began - 60, began - 60))
    assert source_of(frame, began) == "second()"
    os.utime(path, (began + 60, began + 60))
    assert source_of(frame, began) == ""
    assert source_of(frame._replace(path="/no/such\0file"), began) == ""


@pytest.mark.parametrize("torn", ["", "nonsense", '  File "x.py", line 1 in f', "Thread 0x1 (most recent call first):"])
def test_what_is_no_whole_stack_is_read_as_far_as_it_goes(torn: str) -> None:
    assert all(not each.frames for each in threads_in(torn))
