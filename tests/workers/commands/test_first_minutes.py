"""What an impatient new user meets in the first minutes; docs/results/cuts.md lists it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.admin import Admin
from rmqclient.codecs import encode_body
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.health import findings
from rmqclient.health.limits import Limits
from rmqclient.store import StoreConfig, open_store
from rmqclient.store.observe.reading import Reading
from tests.docs.page import REPOSITORY
from tests.workers.commands.test_cli import data, run
from tests.workers.supervised import COMMAND, environment, eventually

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_the_readme_begins_with_an_install_of_one_line_and_prints_what_it_sends() -> None:
    install = README.partition("## Install")[2]
    assert re.search(r"```console\n\$ pip install \.", install)
    first = README.partition("```python")[2].partition("```")[0]
    assert "print(" in first.partition("__main__")[2]
    assert "MB" in first, "it says how much disk a store takes"


def test_the_readme_hides_no_line_of_its_program() -> None:
    assert "<!-- before" not in README


def test_a_small_store_takes_a_third_of_the_disk(tmp_path: Path) -> None:
    used = []
    for name, config in (("usual", StoreConfig()), ("small", StoreConfig.small())):
        with open_store(tmp_path / name, config) as store, Producer(store) as producer:
            producer.send(Message("orders", b"1"))
        used.append(sum(each.stat().st_blocks * 512 for each in (tmp_path / name).rglob("*") if each.is_file()))
    assert used[1] < used[0] / 3
    assert used[1] < 30_000_000


def test_a_group_counts_its_consumers_once_and_shows_no_retry_topic(tmp_path: Path) -> None:
    app = App()

    @app.handler("orders", group="billing")
    def handle(message: ReceivedMessage) -> None:
        raise ValueError("no")

    with open_store(tmp_path) as store, Producer(store) as producer:
        producer.send(Message("orders", b"1"))
        consumer = PushConsumer(store, app.handlers)
        consumer.start()
        with Admin(store) as admin:
            eventually(lambda: "%RETRY%billing" in store.topics, "a retry")
            eventually(lambda: any(each.topic == "%RETRY%billing" for each in admin.consumers()), "its member")
            assert data(run("group", "ls", "-o", "json", "--query", "[].members", "--store", str(tmp_path))) == [1]
            shown = run("group", "assignment", "billing", "--store", str(tmp_path)).stdout
        consumer.close()
    assert "orders" in shown
    assert "%RETRY%" not in shown


def test_a_key_that_no_message_has_is_a_miss(tmp_path: Path) -> None:
    run("topic", "create", "orders", "--store", str(tmp_path))
    result = run("message", "find", "orders", "A-17", "--store", str(tmp_path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "rmq: no message of orders has the key A-17 in that time\n"


@pytest.mark.parametrize("command", [["topic", "info"], ["tail", "--no-follow"], ["topic", "table"]])
def test_a_topic_that_nobody_knows_is_named_with_one_that_is_close(tmp_path: Path, command: list[str]) -> None:
    run("topic", "create", "orders", "--store", str(tmp_path))
    result = run(*command, "order", "--store", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr.endswith("did you mean orders?\n")


def test_a_topic_that_is_there_with_fewer_queues_is_not_silently_left(tmp_path: Path) -> None:
    run("topic", "create", "orders", "--store", str(tmp_path))
    result = run("topic", "create", "orders", "--queues", "8", "--store", str(tmp_path))
    assert (result.exit_code, "rmq topic update orders --queues 8" in result.stderr) == (1, True)


@pytest.mark.parametrize(("answer", "left"), [("n", ["orders"]), ("y", [])])
def test_what_cannot_be_undone_asks_on_a_terminal(tmp_path: Path, answer: str, left: list[str]) -> None:
    run("topic", "create", "orders", "--store", str(tmp_path))
    terminal, of_command = pty.openpty()
    command = [*COMMAND, "topic", "rm", "orders", "--store", str(tmp_path)]
    with subprocess.Popen(command, stdin=of_command, stderr=-1, env=environment(), text=True) as process:
        os.write(terminal, f"{answer}\n".encode())
        process.wait()
    os.close(terminal)
    os.close(of_command)
    assert data(run("topic", "ls", "-o", "json", "--query", "[].topic", "--store", str(tmp_path))) == left


def test_a_dead_letter_is_shown_in_words_without_frames_of_the_package(tmp_path: Path) -> None:
    app = App()

    @app.handler("orders", group="billing", retry=RetryPolicy(max_retries=0))
    def handle(message: ReceivedMessage) -> None:
        raise ValueError("no")

    with open_store(tmp_path) as store, Producer(store) as producer:
        producer.send(Message("orders", b"1"))
        consumer = PushConsumer(store, app.handlers)
        consumer.start()
        eventually(lambda: "%DLQ%billing" in store.topics, "a dead letter")
        consumer.close()
    offset = data(run("dlq", "ls", "billing", "-o", "json", "--query", "[0].message_id", "--store", str(tmp_path)))
    shown = run("dlq", "show", "billing", str(offset), "--store", str(tmp_path)).stdout
    assert "done          waiting" in shown
    assert "None" not in shown
    assert "ValueError: no" in shown
    assert f"{os.sep}rmqclient{os.sep}" not in shown


def test_a_whole_store_is_verified_by_name_or_without_one_and_says_so(tmp_path: Path) -> None:
    run("topic", "create", "orders", "--store", str(tmp_path))
    for arguments in (["store", "verify", str(tmp_path)], ["--store", str(tmp_path), "store", "verify"]):
        result = run(*arguments)
        assert (result.exit_code, result.stderr) == (0, f"ok: every invariant of {tmp_path} holds\n")
    assert run("store", "verify", RMQ_STORE=str(tmp_path)).exit_code == 0
    refused = run("store", "verify")
    assert (refused.exit_code, "no store: give ROOT, set RMQ_STORE" in refused.stderr) == (2, True)


def test_a_pipeline_without_spark_says_only_what_to_install(tmp_path: Path) -> None:
    run("topic", "create", "orders", "--store", str(tmp_path))
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from rmqclient.workers.entry import main\n"
        f"sys.argv = ['rmq', 'pipeline', 'audit', 'orders', '--store', {str(tmp_path)!r}]; main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "spark-submit" not in done.stderr
    assert "rmqclient[spark]" in done.stderr


def test_a_send_of_what_is_no_message_says_what_to_write(tmp_path: Path) -> None:
    with Producer(tmp_path) as producer:
        for send in (producer.send, producer.send_async):
            with pytest.raises(TypeError, match=r'not int: write send\(Message\("topic", body\)\)'):
                send(5)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="no key"):
            producer.send_once("orders", "body")
        with pytest.raises(TypeError) as other:
            producer.send(Message("orders", b"1"), sharding_key=7)  # type: ignore[call-overload]
        assert "write send" not in str(other.value)


def test_a_handler_may_name_its_group_in_second_place() -> None:
    app = App()

    @app.handler("orders", "billing")
    def handle(message: ReceivedMessage) -> None:
        del message

    assert [(each.topic, each.group) for each in app.handlers] == [("orders", "billing")]


def test_dead_letters_near_their_end_are_warned_of(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, Producer(store) as producer:
        producer.send(Message("orders", b"1"))
        letters = store.appenders.make(lambda topic: store.topics.create(topic, 1), encode_body)
        letters.append(Message("%DLQ%billing", b"1"))
        with Reading(str(tmp_path)) as reading:
            (old,) = [
                each for each in findings.look(reading, Limits(dlq_warn=None, dlq_age_warn_s=-1)) if each.check == "dlq"
            ]
            (young,) = [each for each in findings.look(reading, Limits(dlq_warn=None)) if each.check == "dlq"]
    assert (old.level, old.state.endswith("ago goes with its log file")) == (findings.WARNING, True)
    assert young.level == findings.OK
