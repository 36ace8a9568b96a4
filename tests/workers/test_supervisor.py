"""A supervisor and its workers as real processes: killed, hung, stopped and orphaned.

The log is the supervisor's standard error, where it names the process of every worker that became ready.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqclient import Message, Producer
from rmqclient.admin import Admin
from rmqclient.store import open_store
from rmqclient.workers.exit_codes import ExitCode
from tests.support.host.load import slowdown
from tests.workers.supervised import (
    Supervised,
    children_of,
    environment,
    eventually,
    resident_mib,
    rmq,
    runs,
)

Supervise = Callable[..., Supervised]

pytestmark = pytest.mark.slow


def test_workers_handle_messages_and_are_listed_while_they_are_ready(supervise: Supervise) -> None:
    # Given two workers
    supervised = supervise("obedient", "--processes", "2")
    pids = supervised.ready(2)

    # When a message is sent
    supervised.send("hello")

    # Then one of them handles it
    assert supervised.recorded("done hello") in pids.values()

    # And the worker table shows both, ready and of this supervisor
    rows = json.loads(rmq("worker", "ls", "--store", str(supervised.root), "-o", "json"))
    assert {row["pid"] for row in rows} == set(pids.values())
    assert {(row["state"], row["supervisor_pid"]) for row in rows} == {("ready", supervised.process.pid)}


def test_a_killed_worker_alone_is_replaced_and_its_message_is_delivered_again(supervise: Supervise) -> None:
    # Given two workers
    supervised = supervise("obedient", "--processes", "2")
    pids = supervised.ready(2)

    # When one of them is killed
    os.kill(pids[1], signal.SIGKILL)

    # Then only that one is replaced, and the log says what that kind of death may mean
    supervised.replaced(1, pids[1])
    assert supervised.pids()[2] == pids[2]
    supervised.logged(rf"worker 1 \(pid {pids[1]}\): killed by SIGKILL: by a person, .*; starting it again")

    # And a message that ends the process of its handler is delivered again, to another process
    supervised.send("exit")
    ended = supervised.recorded("began exit")
    assert supervised.recorded("done exit") != ended


def test_a_worker_whose_handler_hangs_shows_its_stacks_and_is_replaced(supervise: Supervise) -> None:
    # Given a limit of one second for a message
    supervised = supervise("obedient", "--processes", "1", "--time-limit", "1s")
    pids = supervised.ready(1)

    # When a handler does not return
    supervised.send("hang")

    # Then the stack of its thread is in the log, and the worker is replaced
    supervised.replaced(1, pids[1])
    supervised.logged(r"hung: a message has been in its handler for")
    supervised.logged(r'File ".*obedient\.py", line \d+ in never_return')
    supervised.logged(r"killed by SIGABRT")

    # And the message is delivered again
    assert supervised.recorded("done hang") != pids[1]


@pytest.mark.parametrize("kept", ["queue", "key"])
def test_a_message_that_exceeds_the_time_limit_in_order_is_a_dead_letter_that_says_so(
    supervise: Supervise, kept: str
) -> None:
    # Given a handler that keeps an order and does not return, and two attempts
    supervised = supervise("hanging_in_order", "--processes", "1", "--time-limit", "1s")
    store = ("--store", str(supervised.root), "-o", "json")
    supervised.ready(1)
    topic, group = f"by_{kept}", f"hangs_by_{kept}"

    # When a message has ended two workers
    (sent,) = json.loads(rmq("send", topic, "hang", "--sharding-key", "A-17", *store))
    supervised.logged(rf"group {group}: 1 messages .* are dead letters after attempt 2: time limit")

    # Then its dead letter and its life tell the cause of both
    letter = json.loads(rmq("dlq", "show", group, sent["message_id"], *store))
    told = [row["detail"] for row in json.loads(rmq("msg", "trace", sent["message_id"], *store))]
    assert letter["failures"][-1]["error"] == "time limit"
    assert any(detail.startswith("attempt 2: time limit: ") for detail in told)


def test_a_worker_that_gives_no_sign_of_life_is_killed_even_if_it_cannot_take_a_signal(supervise: Supervise) -> None:
    # Given a worker that may be silent for a second
    supervised = supervise("obedient", "--processes", "1", "--beat-timeout", "1s")
    pids = supervised.ready(1)

    # When it is stopped, so that SIGABRT waits
    os.kill(pids[1], signal.SIGSTOP)

    # Then it is killed and replaced
    supervised.replaced(1, pids[1])
    supervised.logged(r"hung: no sign of life for")
    supervised.logged(rf"\(pid {pids[1]}\): killed by SIGKILL")


def test_a_stop_of_the_whole_group_lets_messages_in_flight_finish(supervise: Supervise, tmp_path: Path) -> None:
    # Given a message in its handler
    supervised = supervise("obedient", "--processes", "2")
    supervised.ready(2)
    supervised.send(f"wait {tmp_path / 'go'}")
    supervised.recorded("began wait")

    # When every process of the group gets SIGTERM, as from a service manager
    supervised.tell_group(signal.SIGTERM)
    supervised.logged("stopping: ")

    # Then the handler still finishes, and the supervisor exits 0
    (tmp_path / "go").touch()
    assert supervised.exit_code() == 0, supervised.log
    assert supervised.records("done wait")


def test_the_first_ctrl_c_says_what_the_second_does_and_the_second_kills(supervise: Supervise, tmp_path: Path) -> None:
    # Given a message in its handler
    supervised = supervise("obedient", "--processes", "1")
    pids = supervised.ready(1)
    supervised.send(f"wait {tmp_path / 'never'}")
    supervised.recorded("began wait")
    eventually(lambda: in_flight(supervised) == 1, "the message in the worker table", supervised)

    # When Ctrl-C is pressed, which reaches the whole group
    supervised.tell_group(signal.SIGINT)

    # Then the supervisor says what is in flight and what comes next, and the worker goes on
    supervised.logged(r"stopping: messages in flight: 1, .* The next Ctrl-C kills the workers at once")
    assert runs(pids[1])

    # And when it is pressed again, it ends at once
    supervised.tell_group(signal.SIGINT)
    assert supervised.exit_code() == 130
    assert not runs(pids[1])


def test_a_handler_that_outlives_the_deadline_costs_the_exit_code(supervise: Supervise, tmp_path: Path) -> None:
    # Given a message in its handler, and one second to finish
    supervised = supervise("obedient", "--processes", "1", "--shutdown-timeout", "1s")
    pids = supervised.ready(1)
    supervised.send(f"wait {tmp_path / 'never'}")
    supervised.recorded("began wait")

    # When the supervisor is told to stop
    supervised.process.send_signal(signal.SIGTERM)

    # Then it exits 1, and leaves no worker
    assert supervised.exit_code() == 1
    assert not runs(pids[1])


def test_every_worker_in_a_crash_loop_ends_the_supervisor_with_5(supervise: Supervise) -> None:
    # Given an application that ends every worker before it is ready
    supervised = supervise("dies_in_workers", "--processes", "2")

    # Then the supervisor tries each five times, and gives up
    assert supervised.exit_code() == 5, supervised.log
    assert supervised.log.count("exit code 9") == 10
    assert "every worker is in a crash loop" in supervised.log


def test_a_worker_that_was_ready_before_it_died_at_once_has_booted(supervise: Supervise, tmp_path: Path) -> None:
    # Given messages that wait, each of which ends its worker as soon as that is ready
    with Producer(tmp_path / "store") as producer:
        producer.create_topic("orders", 1)
        producer.send_batch([Message("orders", b"die")] * 6)
    supervised = supervise("obedient", "--processes", "1")

    # Then the supervisor goes on after more of them than workers that may fail to boot
    eventually(lambda: supervised.log.count("exit code 9") >= 6, "a sixth death", supervised)
    assert "crash loop" not in supervised.log
    assert supervised.process.poll() is None


def test_handlers_that_a_worker_cannot_import_end_the_supervisor_with_2(supervise: Supervise) -> None:
    supervised = supervise("breaks_in_workers", "--processes", "1")
    assert supervised.exit_code() == 2, supervised.log
    assert supervised.log.count("its handlers cannot be loaded") == 1
    assert "RuntimeError: not in a worker" in supervised.log


SHOP = """
import os
from pathlib import Path
from rmqclient import App, ReceivedMessage

app = App()

@app.handler("orders", group="billing", threads=2)
def bill(message: ReceivedMessage) -> None:
    with Path(os.environ["RECORD"]).open("a") as file:
        file.write(f"{os.getpid()} first {message.body.decode()}\\n")
"""


@pytest.mark.guarantee("G124")
def test_a_worker_that_is_started_again_runs_the_code_as_it_is_on_disk_then(
    supervise: Supervise, tmp_path: Path
) -> None:
    # Given two workers of a file
    shop = tmp_path / "shop.py"
    shop.write_text(SHOP, encoding="utf-8")
    supervised = supervise("shop:app", "--processes", "2")
    pids = supervised.ready(2)

    # When the file is changed so that it cannot be imported, and a worker is killed
    shop.write_text(f"{SHOP}\nraise RuntimeError('half of a deployment')\n", encoding="utf-8")
    os.kill(pids[1], signal.SIGKILL)

    # Then the log says what failed and what to do, and the other worker goes on
    supervised.logged(r"handlers cannot be loaded: .*RuntimeError: half of a deployment")
    supervised.logged(
        r"worker 1 \(pid \d+\): its handlers cannot be loaded; .*correct that code.*; starting it again in"
    )
    assert check_of_workers(supervised)["level"] == "critical"
    supervised.send("one")
    assert supervised.recorded("first one") == pids[2]

    # When the file is right again, with other code, then the worker comes back with that
    shop.write_text(SHOP.replace("first", "second"), encoding="utf-8")
    supervised.replaced(1, pids[1])
    assert check_of_workers(supervised)["level"] == "ok"
    os.kill(pids[2], signal.SIGKILL)
    supervised.replaced(2, pids[2])
    supervised.send("two")
    assert supervised.recorded("second two") in supervised.pids().values()


@pytest.mark.guarantee("G124")
def test_a_worker_with_another_subscription_on_disk_does_not_stop_the_others(
    supervise: Supervise, tmp_path: Path
) -> None:
    shop = tmp_path / "shop.py"
    shop.write_text(SHOP, encoding="utf-8")
    supervised = supervise("shop:app", "--processes", "2")
    pids = supervised.ready(2)
    shop.write_text(SHOP.replace("threads=2", 'tags="paid"'), encoding="utf-8")
    os.kill(pids[1], signal.SIGKILL)
    supervised.logged(r"worker 1 .*: refused by a group .*restart all workers.*; starting it again in")
    supervised.send("one")
    assert supervised.recorded("first one") == pids[2]


def test_workers_import_the_target_wherever_the_application_goes(supervise: Supervise, tmp_path: Path) -> None:
    # Given a file, named from the working directory, which goes to another directory when it is imported
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "shop.py").write_text(
        f"import os\nos.chdir('/')\n{SHOP}\nif __name__ == '__main__':\n    raise RuntimeError('run as a script')\n",
        encoding="utf-8",
    )
    supervised = supervise("src/shop.py:app", "--processes", "1")
    pids = supervised.ready(1)
    os.kill(pids[1], signal.SIGKILL)
    supervised.replaced(1, pids[1])
    supervised.send("one")
    supervised.recorded("first one")


def test_a_strategy_of_ones_own_reaches_the_workers(supervise: Supervise) -> None:
    supervised = supervise("shares", "--processes", "2")
    supervised.ready(2)
    supervised.send("hello")
    for group in ("billing", "stock"):

        def parts(group: str = group) -> list[int]:
            rows = json.loads(rmq("group", "assignment", group, "--store", str(supervised.root), "-o", "json"))
            return [len(row["queue_ids"]) for row in rows if row["topic"] == "orders"]

        eventually(lambda: parts() == [0, 4], "everything is with the last one", supervised)


def test_workers_run_the_chosen_groups_with_the_settings_of_the_application(supervise: Supervise) -> None:
    # When an application of two groups, made of two applications, is run for one of the groups
    run = supervise("several_groups", "--processes", "1", "--group", "billing")
    run.ready(1)
    run.send("one")

    # Then the worker handles that group alone, and takes its messages as the application says
    run.logged(r"group billing: attempt 1 .*no price; again in 12\.3 s")
    assert "orders -> billing" in run.log
    assert "stock" not in run.log


def test_workers_that_a_group_refuses_end_the_supervisor_with_4_and_the_reason(
    supervise: Supervise, tmp_path: Path
) -> None:
    # Given a member of the group that takes other messages
    with open_store(tmp_path / "store") as store:
        member = store.members().join("billing", "orders", "old@host", "tags paid; allocation averaged")

        # When workers of the same group are started
        supervised = supervise("obedient", "--processes", "2")

        # Then they are not started again and again, and the log names both subscriptions and what to do
        assert supervised.exit_code() == 4
        supervised.logged(r"SubscriptionMismatch: .*subscribes to \(tags \*; allocation averaged\), but 'old@host'")
        supervised.logged(r"\(tags paid; allocation averaged\).* Use a new group, or stop the old workers first")
        supervised.logged(r"refused by a group whose members have another subscription")
        assert "starting it again" not in supervised.log
        member.leave()


def test_a_store_that_cannot_be_opened_ends_it_with_3_and_one_line(supervise: Supervise, tmp_path: Path) -> None:
    # Given a file where the parent of the store should be
    (tmp_path / "file").touch()

    # When a supervisor is started on it
    supervised = supervise("obedient", "--store", str(tmp_path / "file" / "store"))

    # Then it says so in one line
    assert supervised.exit_code() == 3, supervised.log
    assert supervised.log.startswith("rmq: cannot open the store")
    assert supervised.log.count("\n") == 1


def test_idle_workers_end_at_once_when_their_supervisor_is_killed(supervise: Supervise) -> None:
    # Given two idle workers and their fork server
    supervised = supervise("obedient", "--processes", "2")
    pids = [*supervised.ready(2).values(), *children_of(supervised.process.pid)]

    # When the supervisor is killed
    busy = slowdown()
    supervised.process.kill()
    killed_at = time.monotonic()

    # Then all of them end within two seconds
    eventually(lambda: not any(runs(pid) for pid in pids), "the end of the workers", supervised)
    took_s = time.monotonic() - killed_at
    assert took_s < 2 or took_s < 2 * max(busy, slowdown())


def test_an_orphaned_worker_finishes_what_is_in_flight_before_it_ends(supervise: Supervise, tmp_path: Path) -> None:
    # Given a message in its handler
    supervised = supervise("obedient", "--processes", "1")
    pids = supervised.ready(1)
    supervised.send(f"wait {tmp_path / 'go'}")
    supervised.recorded("began wait")

    # When the supervisor is killed and the handler may finish
    supervised.process.kill()
    supervised.logged("the supervisor is gone")
    assert runs(pids[1])
    (tmp_path / "go").touch()

    # Then it finishes, and the worker ends
    assert supervised.recorded("done wait") == pids[1]
    eventually(lambda: not runs(pids[1]), "the end of the worker", supervised)


def test_an_orphaned_worker_does_not_wait_for_ever_for_its_handler(supervise: Supervise, tmp_path: Path) -> None:
    # Given a handler that does not return
    supervised = supervise("obedient", "--processes", "1")
    pids = supervised.ready(1)
    supervised.send(f"wait {tmp_path / 'never'}")
    supervised.recorded("began wait")

    # When the supervisor is killed
    supervised.process.kill()

    # Then the worker ends all the same
    eventually(lambda: not runs(pids[1]), "the end of the worker", supervised)


def test_workers_are_replaced_when_their_fork_server_is_killed(supervise: Supervise) -> None:
    # Given a worker that cannot end by itself
    supervised = supervise("obedient", "--processes", "1")
    pids = supervised.ready(1)
    os.kill(pids[1], signal.SIGSTOP)

    # When the process that forked it is killed
    os.kill(parent_of(pids[1]), signal.SIGKILL)

    # Then the worker whose end nobody could learn is ended, and another one handles messages
    supervised.replaced(1, pids[1])
    assert not runs(pids[1])
    supervised.send("hello")
    supervised.recorded("done hello")


def test_workers_are_added_and_removed_by_signals(supervise: Supervise) -> None:
    # Given one worker
    supervised = supervise("obedient", "--processes", "1")
    pids = supervised.ready(1)

    # When one more is asked for
    supervised.process.send_signal(signal.SIGTTIN)
    more = supervised.ready(2)
    assert more[1] == pids[1]

    # Then one less stops the last, and the first stays however often it is asked
    supervised.process.send_signal(signal.SIGTTOU)
    supervised.logged(rf"worker 2 \(pid {more[2]}\): stopped")
    supervised.process.send_signal(signal.SIGTTOU)
    supervised.send("hello")
    assert supervised.recorded("done hello") == pids[1]

    # And that was no failure
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.exit_code() == 0


def test_supervisor_and_idle_worker_are_small(supervise: Supervise) -> None:
    # Given an idle worker
    supervised = supervise("obedient", "--processes", "1")
    worker = supervised.ready(1)[1]

    # Then neither process holds more than 60 MiB
    assert resident_mib(supervised.process.pid) < 60
    assert resident_mib(worker) < 60

    # And the worker has not loaded the command line
    supervised.send("modules")
    supervised.recorded("done modules")
    modules = supervised.record_path.read_text(encoding="utf-8").split()
    assert {"click", "rich", "rmqclient.workers.cli"}.isdisjoint(modules)


def test_workers_do_not_run_the_script_that_started_their_supervisor(supervise: Supervise, tmp_path: Path) -> None:
    # Given a script without a guard, as the installed command is one
    script = tmp_path / "start.py"
    script.write_text(
        "print('script runs', flush=True)\nfrom rmqclient.workers.cli import main\nmain()\n", encoding="utf-8"
    )

    # When it starts a supervisor
    supervised = supervise("obedient", "--processes", "1", command=[sys.executable, str(script)])
    supervised.ready(1)
    supervised.send("modules")
    supervised.recorded("done modules")

    # Then the script has run once, and the worker has loaded nothing of the command line
    assert supervised.log.count("script runs") == 1
    assert "click" not in supervised.record_path.read_text(encoding="utf-8").split()


def check_of_workers(supervised: Supervised) -> dict[str, Any]:
    """What `rmq check` says of the workers, of which two should be ready."""
    command = [sys.executable, "-m", "rmqclient.workers", "check", "--store", str(supervised.root)]
    done = subprocess.run(
        [*command, "--min-ready", "2", "-o", "json"], check=False, stdout=subprocess.PIPE, env=environment()
    )
    (found,) = [each for each in json.loads(done.stdout)["findings"] if each["check"] == "workers"]
    return dict(found)


def in_flight(supervised: Supervised) -> int:
    query = rmq("worker", "ls", "--store", str(supervised.root), "-o", "json", "--query", "sum([].in_flight)")
    return int(query)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


@pytest.mark.guarantee("G88")
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_workers_of_a_store_that_was_removed_end_and_write_nothing(supervise: Supervise, is_made_anew: bool) -> None:
    # Given two workers that have handled a message
    supervised = supervise("obedient", "--processes", "2")
    pids = supervised.ready(2)
    supervised.send("hello")
    supervised.recorded("done hello")

    # When the directory is removed, or another store takes its place
    supervised.root.rename(supervised.directory / "old")
    if is_made_anew:
        with Producer(supervised.root) as producer:
            for _ in range(8):
                producer.send("orders", "new")

    # Then the workers and their supervisor end with the code of a store that is not there, and none is restarted
    assert supervised.exit_code() == ExitCode.STORE_CANNOT_BE_OPENED
    assert supervised.pids() == pids
    if is_made_anew:
        with contextlib.closing(Admin(supervised.root)) as admin:
            assert admin.groups() == []
    else:
        assert not supervised.root.exists()
