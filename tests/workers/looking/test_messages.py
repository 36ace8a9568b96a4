"""``rmq send``, ``tail`` and ``message``: many messages from files, the ones that are wanted, and the life of one."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from rmqclient import App, Message, ReceivedMessage, RetryPolicy
from rmqclient.admin import Admin
from rmqclient.codecs import encode_body
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import open_store
from tests.workers.commands.test_cli import data, rows, run
from tests.workers.supervised import eventually


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def bodies(store: str, *arguments: str) -> list[str]:
    found = rows(run("tail", *arguments, "--from", "earliest", "--no-follow", "-o", "json", "--store", store))
    return [row["body"] for row in found]


def test_each_line_of_a_file_is_a_message(store: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b'{"to": "a"}\n\n{"to": "b"}\r\n{"to": "a"}')
    sent = run(
        "send",
        "orders",
        "--lines",
        str(tmp_path / "lines"),
        "--sharding-key-from",
        "to",
        "-o",
        "json",
        "--store",
        store,
    )
    assert data(sent) == [{"topic": "orders", "sent": 3}]
    found = rows(run("tail", "orders", "--from", "earliest", "--no-follow", "-o", "json", "--store", store))
    assert [(row["body"], row["sharding_key"]) for row in found] == [
        ('{"to": "a"}', "a"),
        ('{"to": "b"}', "b"),
        ('{"to": "a"}', "a"),
    ]
    assert found[0]["queue_id"] == found[2]["queue_id"]


def test_a_query_of_tail_is_for_each_message_and_prints_null_for_those_of_which_it_selects_nothing(store: str) -> None:
    for tags in ((), ("--tags", "paid")):
        run("send", "orders", "x", *tags, "--store", store)
    tail = ("tail", "orders", "--from", "earliest", "--no-follow", "--store", store)
    assert sorted(run(*tail, "--query", "tags").stdout.splitlines()) == ["null", "paid"]
    assert run("topic", "info", "orders", "--query", "nope", "--store", store).stdout == "null\n"


def test_what_tail_prints_can_be_sent_again(store: str) -> None:
    run(
        "send",
        "orders",
        "-",
        "--tags",
        "paid",
        "--key",
        "7",
        "--property",
        "colour=red",
        "--store",
        store,
        stdin=b"\xff\x00",
    )
    run("send", "orders", "text", "--store", store)
    printed = run("tail", "orders", "--from", "earliest", "--no-follow", "-o", "jsonl", "--store", store)
    copied = run("send", "copies", "--jsonl", "-", "-o", "json", "--store", store, stdin=printed.stdout.encode())
    assert data(copied) == [{"topic": "copies", "sent": 2}]
    first, second = rows(run("tail", "copies", "--from", "earliest", "--no-follow", "-o", "json", "--store", store))
    assert (first["body_base64"], first["tags"], first["keys"]) == ("/wA=", "paid", ["7"])
    assert (first["properties"]["colour"], second["body"]) == ("red", "text")


@pytest.mark.guarantee("G123")
def test_what_no_message_of_today_can_hold_is_set_aside_and_named(store: str) -> None:
    # Given lines of a store that took more, around others
    lines = [
        {"body": "one", "flag": 7},
        {"body": "two", "properties": {"p": "a\x01b"}},
        {"body": "three", "tags": "paid || refunded"},
        {"body_base64": "AAA=", "body_error": "it exceeds the limit"},
        {"body": "five"},
    ]
    stdin = "\n".join(map(json.dumps, lines)).encode()

    # When they are sent
    sent = run("send", "orders", "--jsonl", "-", "-o", "json", "--store", store, stdin=stdin)

    # Then each message is as its line says, and each other line is named
    assert sent.exit_code == 1
    assert "not sent: lines 2, 3, 4" in sent.stderr
    assert json.loads(sent.stdout) == [{"topic": "orders", "sent": 2}]
    found = rows(run("tail", "orders", "--from", "earliest", "--no-follow", "-o", "json", "--store", store))
    assert [(row["body"], row.get("flag")) for row in found] == [("one", 7), ("five", None)]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"body_base64": "%%%"}', '"body_base64": "%%%" is not base64: '),
        ('{"body_base64": 1234}', '"body_base64": 1234 is not text: put it in quotes'),
        ('{"body": "b", "tags": 7}', '"tags": 7 is not text: put it in quotes'),
        ('{"body": "b", "sharding_key": 7}', '"sharding_key": 7 is not text: put it in quotes'),
        ('{"body": "b", "keys": 4711}', '"keys": 4711 is not a list of texts: put each key in quotes'),
        ('{"body": "b", "keys": ["a", 4711]}', '"keys": ["a",4711] is not a list of texts'),
        ('{"body": "b", "properties": {"a": 1}}', '"properties": {"a":1} is not an object of texts'),
        ('{"body"', "is not JSON"),
        ('{"body": "b", "delay": 3, "subject": "s"}', '["delay","subject"] would be lost'),
    ],
)
def test_a_line_that_is_no_message_is_named_with_its_value(store: str, line: str, told: str) -> None:
    lines = f'{{"body": "a"}}\n\n{line}\n{{"body": "b"}}\n'
    sent = run("send", "orders", "--jsonl", "-", "--store", store, stdin=lines.encode())
    assert sent.exit_code == 1
    assert "line 3 is set aside: " in sent.stderr
    assert told in sent.stderr
    assert "not sent: line 3" in sent.stderr
    assert sorted(bodies(store, "orders")) == ["a", "b"], "the lines around it are sent"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("no JSON", "is not JSON"),
        ('{"n": 1}', "'length(n)' does not fit it"),
        ('{"m": "abc"}', "'length(n)' does not fit it"),
    ],
    ids=["text", "number", "nothing"],
)
def test_a_line_without_the_sharding_key_that_is_asked_for_stops_no_other_one(store: str, line: str, told: str) -> None:
    lines = f'{{"n": "abc"}}\n{line}\n{{"n": "defg"}}\n'
    options = ["--sharding-key-from", "length(n)", "--store", store]
    sent = run("send", "orders", "--lines", "-", *options, stdin=lines.encode())
    assert (sent.exit_code, "line 2 is set aside: " in sent.stderr, told in sent.stderr) == (1, True, True)
    found = rows(run("tail", "orders", "--from", "earliest", "--no-follow", "-o", "json", "--store", store))
    assert sorted(row["sharding_key"] for row in found) == ["3", "4"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["send", "orders", "{}", "--sharding-key", "a", "--sharding-key-from", "b"], "--sharding-key-from"),
        (["send", "orders", "{}", "--sharding-key-from", "a["], "--sharding-key-from"),
        (["send", "orders", "{}", "--property", "a=1", "--property", "a=2"], "--property a is given 2 times"),
        (["tail", "orders", "--no-follow", "--format", "%b", "-o", "json"], "--format"),
        (["tail", "orders", "--no-follow", "--format", "%b", "--query", "body"], "--format"),
    ],
    ids=["two sharding keys", "no JMESPath", "a property twice", "two outputs", "a query of a format"],
)
def test_options_of_which_one_would_have_no_effect_are_refused(store: str, command: list[str], told: str) -> None:
    refused = run(*command, "--store", store)
    assert (refused.exit_code, told in refused.stderr) == (2, True)


def test_a_body_in_which_the_sharding_key_is_not_found_is_not_sent(store: str) -> None:
    refused = run("send", "orders", '{"id": 7}', "--sharding-key-from", "customer.id", "--store", store)
    assert (refused.exit_code, "customer.id" in refused.stderr) == (1, True)
    assert run("send", "orders", '{"id": 7}', "--sharding-key-from", "id", "--store", store).exit_code == 0
    (row,) = rows(run("tail", "orders", "--from", "earliest", "--no-follow", "-o", "json", "--store", store))
    assert row["sharding_key"] == "7"


def test_an_empty_standard_input_is_refused_unless_it_is_asked_for(store: str) -> None:
    refused = run("send", "orders", "--store", store, stdin=b"")
    assert (refused.exit_code, "standard input is empty: give - for an empty body" in refused.stderr) == (2, True)
    assert run("send", "orders", "-", "--store", store, stdin=b"").exit_code == 0
    assert bodies(store, "orders") == [""]


def test_a_rate_is_kept(store: str) -> None:
    begun = time.monotonic()
    assert run("send", "orders", "x", "--count", "5", "--rate", "20", "--store", store).exit_code == 0
    assert time.monotonic() - begun >= 0.2


def test_tail_takes_several_topics_and_filters(store: str) -> None:
    run("send", "orders", '{"total": 200}', "--tags", "paid", "--property", "region=eu", "--store", store)
    run("send", "orders", '{"total": 5}', "--tags", "open", "--property", "region=us", "--store", store)
    run("send", "mails", "hello", "--store", store)
    assert bodies(store, "orders", "mails") == ['{"total": 200}', '{"total": 5}', "hello"]
    assert bodies(store, "/.*s/", "--limit", "1") == ['{"total": 200}']
    assert bodies(store, "orders", "--tags", "open || other") == ['{"total": 5}']
    assert bodies(store, "orders", "--where", "region = 'eu'") == ['{"total": 200}']
    assert bodies(store, "orders", "--json", "total < `10`") == ['{"total": 5}']
    assert bodies(store, "orders", "--until", "1h") == []
    form = ["--format", r"%t|%g|%{region}|%b%%\n"]
    shown = run("tail", "orders", "--from", "earliest", "--no-follow", *form, "--store", store)
    assert shown.stdout == 'orders|paid|eu|{"total": 200}%\norders|open|us|{"total": 5}%\n'
    for wrong in (["/(/"], ["orders", "--where", "region ="], ["orders", "--format", "%z"]):
        result = run("tail", *wrong, "--from", "earliest", "--no-follow", "--store", store)
        assert (result.exit_code, "Traceback" in result.stderr) == (2, False)
    assert run("tail", "/nothing/", "--store", store).exit_code == 1
    by_queue = [body for number in range(4) for body in bodies(store, "orders", "--queue", str(number))]
    assert sorted(by_queue) == ['{"total": 200}', '{"total": 5}']
    assert run("tail", "orders", "--queue", "4", "--no-follow", "--store", store).exit_code == 2


def test_a_message_is_shown_by_its_place_as_a_page(store: str) -> None:
    (sent,) = rows(run("send", "orders", "body", "--key", "A-18", "-o", "json", "--store", store))
    page = run("message", "show", sent["message_id"], "--store", store).stdout
    assert [line.split()[0] for line in page.splitlines()[:8]] == [
        "id",
        "topic",
        "place",
        "stored",
        "born",
        "tags",
        "keys",
        "attempts",
    ]
    place = f"{sent['queue_id']}:0"
    assert run("msg", "get", place, "--topic", "orders", "--store", store).stdout == page
    assert run("msg", "get", place, "--store", store).exit_code == 2
    assert (
        "the queue has 0 to 0"
        in run("msg", "get", f"{sent['queue_id']}:5", "--topic", "orders", "--store", store).stderr
    )
    assert "has no queue 9" in run("msg", "get", "9:0", "--topic", "orders", "--store", store).stderr
    unique, offset = rows(run("msg", "decode", sent["message_id"], "-o", "json"))
    assert (unique["kind"], unique["address"]) == ("unique id", "127.0.0.1")
    assert offset["kind"] == "offset id"


def test_the_life_of_a_message_that_was_given_up(tmp_path: Path) -> None:
    app = App(tmp_path)

    @app.handler("orders", group="billing", retry=RetryPolicy(max_retries=1, delays=(0.01,)))
    def fail(message: object) -> None:
        raise TimeoutError("too slow")

    with open_store(tmp_path) as store:
        (sent,) = rows(run("send", "orders", "body", "-o", "json", "--store", str(tmp_path)))
        consumer = PushConsumer(store, app.handlers)
        consumer.start()
        eventually(lambda: "%DLQ%billing" in store.topics, "a dead letter")
        consumer.close()
        told = rows(run("msg", "trace", sent["message_id"], "-o", "json", "--store", str(tmp_path)))
    events = [row["event"] for row in told]
    assert events[:2] == ["born", "stored"]
    assert {"failed", "retry stored", "dead letter", "waits", "group billing"} <= set(events)
    assert "attempt 1: TimeoutError: too slow" in {row["detail"] for row in told}
    json.dumps(told)


def test_the_life_of_a_message_has_the_failures_and_the_standing_of_each_group(tmp_path: Path) -> None:
    # Given a message that one group gives up at once, one after a retry, and one handles
    app = App(tmp_path)

    def fail(message: object) -> None:
        raise TimeoutError("too slow")

    app.handler("orders", group="ledger", retry=RetryPolicy(max_retries=0))(fail)
    app.handler("orders", group="billing", retry=RetryPolicy(max_retries=1, delays=(0.01,)))(fail)
    app.handler("orders", group="mail")(lambda _: None)

    with open_store(tmp_path) as store:
        (sent,) = rows(run("send", "orders", "body", "-o", "json", "--store", str(tmp_path)))
        with PushConsumer(store, app.handlers):
            eventually(lambda: {"%DLQ%billing", "%DLQ%ledger"} <= set(store.topics.topics()), "two dead letters")

        # When its life is read, from its place or from that of a dead letter
        where = ("-o", "json", "--store", str(tmp_path))
        told = rows(run("msg", "trace", sent["message_id"], *where))
        from_letter = rows(run("msg", "trace", "0:0", "--topic", "%DLQ%ledger", *where))

    # Then the failures of both groups are there, each once, and what each made of it
    failures = [(row["place"].split(",")[0], row["detail"]) for row in told if row["event"] == "failed"]
    assert sorted(failures) == [
        ("group billing", "attempt 1: TimeoutError: too slow"),
        ("group billing", "attempt 2: TimeoutError: too slow"),
        ("group ledger", "attempt 1: TimeoutError: too slow"),
    ]
    standing = {row["event"]: row["detail"] for row in told if row["place"].startswith("orders ")}
    assert standing["group billing"] == standing["group ledger"] == "given up: it is a dead letter"
    assert standing["group mail"] == "finished"
    assert from_letter == told


def test_the_steps_of_a_message_are_shown_and_it_is_told_what_it_waits_for(tmp_path: Path) -> None:
    # Given a message that has finished a step and waits
    app, approved = App(tmp_path), list[object]()

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        message.steps("charge", lambda: {"cents": 250})
        approved.append(message.steps.wait_for("approved", timeout=3_600))

    with open_store(tmp_path) as store:
        (sent,) = rows(run("send", "orders", "body", "-o", "json", "--store", str(tmp_path)))
        with PushConsumer(store, app.handlers):
            eventually(lambda: next(store.timer.pending(), None), "it waits")
            signal = ("msg", "signal", sent["message_id"], "approved")
            where = ("--group", "billing", "--store", str(tmp_path))

            # When somebody says what it waits for, first in no JSON
            assert "a text needs its quotes" in run(*signal, "yes", *where).stderr
            assert run(*signal, '{"by": "Ada"}', *where).stdout == "stored; the message was waiting and goes on\n"
            eventually(lambda: approved, "it goes on")
        told = rows(run("msg", "trace", sent["message_id"], "-o", "json", "--store", str(tmp_path)))

    # Then all of it is in its life, in order
    assert approved == [{"by": "Ada"}]
    steps = [(row["event"], row["detail"].split(" until ")[0]) for row in told if row["place"] == "group billing"]
    assert steps == [
        ("step", "charge, 13 bytes of json"),
        ("waits", "approved"),
        ("signal", "approved, 12 bytes of json"),
    ]
    assert "woken" in {row["event"] for row in told}


def test_find_counts_the_messages_that_were_chosen(store: str) -> None:
    for number in range(9):
        words = ["--key", "A-17", "--property", f"region={'eu' if number in (0, 3) else 'us'}"]
        run("send", "orders", str(number), *words, "--store", store)
    found = run("message", "find", "orders", "A-17", "--where", "region = 'eu'", "--limit", "2", "--store", store)
    assert [line.split()[-1] for line in found.stdout.splitlines()] == ["3", "0"]
    missed = run("message", "find", "orders", "A-17", "--where", "region = 'asia'", "--store", store)
    assert (missed.exit_code, "region = 'asia'" in missed.stderr) == (1, True)


def test_lists_count_the_rows_that_were_chosen(store: str) -> None:
    with open_store(store) as opened:
        letters = opened.appenders.make(lambda topic: opened.topics.create(topic, 1), encode_body)
        for number in range(9):
            letters.append(Message("%DLQ%billing", b"dead", keys=[f"A-{number}"]))
    listed = ("dlq", "ls", "billing", "-o", "jsonl", "--query", "[].keys[0]")
    found = run(*listed, "--where", "keys IN ('A-5', 'A-7', 'A-8')", "--limit", "2", "--store", store)
    assert found.stdout.split() == ['"A-5"', '"A-7"']
    missed = run("dlq", "ls", "billing", "--key", "A-5", "--where", "attempts > 3", "--store", store)
    assert (missed.exit_code, "attempts > 3" in missed.stderr.splitlines()[-1]) == (1, True)

    run("send", "orders", "x", "--delay", "1h", "--count", "3", "--store", store)
    run("send", "mails", "x", "--delay", "2h", "--count", "3", "--store", store)
    shown = ("schedule", "ls", "-o", "jsonl", "--query", "[].topic", "--limit", "2", "--store", store)
    assert run(*shown, "--where", "seconds_left > 3700").stdout.split() == ['"mails"'] * 2


def test_events_are_chosen_by_what_programs_get_of_them(store: str) -> None:
    run("send", "orders", "x", "--store", store)
    with Admin(store) as admin:
        admin.seek("billing", "orders", "earliest")
        admin.pause("billing", reason="wrong invoices")
    shown = run("events", "--where", "kind = 'pause' AND at_ms > 1000000000000", "--store", store)
    assert [line.split()[2:4] for line in shown.stdout.splitlines()[1:]] == [["pause", "billing"]]
    assert run("events", "--where", "kind = 'pause'", "-o", "jsonl", "--store", store).stdout.count("\n") == 1
