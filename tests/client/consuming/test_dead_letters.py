"""Dead letters: which ones are shown, sent again or put aside, and that each is only once."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import LettersRejected, StoreBusy
from rmqclient.failures.dead_letters import DeadLetter, Selection, groups, is_reached_alone, purge, replay, select
from rmqclient.failures.failure import Failure
from rmqclient.failures.retry import Retries, copying
from rmqclient.opening import open_backend
from rmqclient.store import MessageQueue, MessageStore, open_store
from rmqclient.store.marks import marks_of
from rmqclient.workers.cli import rmq
from tests.support.written import overwrite
from tests.workers.supervised import eventually

JOURNAL = "config/deadLetters.jsonl"


@pytest.fixture(autouse=True)
def letters(store: MessageStore, producer: Producer) -> None:
    """Six dead letters of group g: topics a and b in turn, keys k0 to k5, three kinds of failures."""
    errors: list[BaseException] = [ValueError("no number"), TimeoutError("too slow"), KeyError("id")]
    for number in range(6):
        topic = "ab"[number % 2]
        message = Message(topic, b"%d" % number, tags="t", keys=(f"k{number}",), properties={"mine": str(number)})
        sent = producer.send(message, sharding_key=f"shard {number}")
        failure = Failure.raised(errors[number % 3], 1, "worker-1")
        Retries(open_backend(store), "g", RetryPolicy(max_retries=0), "me").send_back(
            store.messages.read(sent.commit_log_offset), failure
        )


def bodies(store: MessageStore, selection: Selection, limit: int | None = None) -> list[str]:
    return [letter.message.body.decode() for letter in select(store, "g", selection, limit)]


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        (Selection(), "012345"),
        (Selection(topic="a"), "024"),
        (Selection(error="timeout"), "14"),
        (Selection(error="NUMBER"), "03"),
        (Selection(key="k5"), "5"),
        (Selection(topic="b", error="KeyError"), "5"),
        (Selection(since_ms=time.time_ns() // 1_000_000 + 3_600_000), ""),
        (Selection(since_ms=0, topic="c"), ""),
    ],
)
def test_a_selection_is_what_meets_every_condition(store: MessageStore, selection: Selection, found: str) -> None:
    assert "".join(bodies(store, selection)) == found


def test_a_replay_sends_the_message_to_its_topic_as_it_was(store: MessageStore) -> None:
    ((letter, sent),) = replay(store, "g", Selection(key="k2"))
    again = store.messages.read(sent.commit_log_offset)
    first = store.messages.by_id(letter.message.properties["ORIGIN_MESSAGE_ID"])
    assert first is not None
    assert again.queue_offset > first.queue_offset
    for name in ("topic", "queue_id", "body", "tags", "keys", "sharding_key", "message_id", "flag", "born_timestamp"):
        assert getattr(again, name) == getattr(first, name), name
    assert again.delivery_attempt == 1
    origin = {"ORIGIN_MESSAGE_ID": first.offset_message_id}
    assert again.properties == {**{name: v for name, v in first.properties.items() if name != "WAIT"}, **origin}


@pytest.mark.guarantee("G22")
def test_a_replay_to_its_group_alone_is_handled_there_as_it_was_and_nowhere_else(store: MessageStore) -> None:
    # Given two groups that have handled everything in the topics where it failed
    app, handled = App(), list[tuple[str, ReceivedMessage]]()
    app.handler("a", group="g")(lambda message: handled.append(("g", message)))
    app.handler("a", group="other")(lambda message: handled.append(("other", message)))
    with PushConsumer(store, app.handlers):
        eventually(lambda: len(handled) == 6, "three messages in each group")
        handled.clear()

        # When the dead letters of one are replayed to it alone
        sent = [letter.message for letter, _ in replay(store, "g", Selection(topic="a"), only_group=True)]

        # Then it alone gets them, as a first attempt
        eventually(lambda: len(handled) == 3, "three messages again")
        assert {group for group, _ in handled} == {"g"}
        assert sorted(each.message_id for _, each in handled) == sorted(each.message_id for each in sent)
        for _, each in handled:
            assert (each.delivery_attempt, each.tags, each.properties["mine"]) == (1, "t", each.body.decode())
        with Producer(store) as producer:
            producer.send(Message("a", b"last"))
        eventually(lambda: len(handled) == 5, "one more in each group")
    assert [each.body for group, each in handled if group == "other"] == [b"last"]
    assert is_reached_alone(open_backend(store), "g")
    assert not is_reached_alone(open_backend(store), "unknown")


def test_an_issue_is_an_exception_and_where_it_was_raised(store: MessageStore) -> None:
    (found, *others) = {letter.issue for letter in select(store, "g", Selection(error="timeout"))}
    assert others == []
    assert found.error == "TimeoutError"
    assert len(list(select(store, "g", Selection(issue=found)))) == 2
    assert list(select(store, "g", Selection(until_ms=0))) == []


@pytest.mark.guarantee("G22")
def test_each_is_replayed_once_unless_asked_again_also_after_a_restart(store: MessageStore) -> None:
    assert len(list(replay(store, "g", Selection(topic="a")))) == 3
    assert [letter.message.body for letter in purge(store, "g", Selection(key="k1"))] == [b"1"]
    store.close()
    with open_store(store.root) as reopened:
        assert "".join(bodies(reopened, Selection())) == "35"
        (counted,) = groups(reopened)
        assert (counted.group, counted.waiting, counted.replayed, counted.purged) == ("g", 2, 3, 1)
        assert len(list(replay(reopened, "g", Selection()))) == 2
        assert list(replay(reopened, "g", Selection())) == []
        assert len(list(replay(reopened, "g", Selection(done=True)))) == 6


def test_a_replay_that_stops_in_the_middle_goes_on_behind_what_it_sent(store: MessageStore) -> None:
    sending = replay(store, "g", Selection())
    next(sending)
    next(sending)
    sending.close()
    assert "".join(bodies(store, Selection())) == "2345"
    assert len(list(replay(store, "g", Selection(), limit=3))) == 3
    assert "".join(bodies(store, Selection())) == "5"


@pytest.mark.guarantee("G128")
def test_a_replay_is_marked_with_how_many_it_sent_also_when_it_stops_in_the_middle(store: MessageStore) -> None:
    sending = replay(store, "g", Selection())
    next(sending)
    next(sending)
    sending.close()
    assert list(replay(store, "g", Selection(topic="c"))) == []
    assert len(list(replay(store, "g", Selection()))) == 4
    marks = [(mark.kind, mark.subject, mark.words.split()[0]) for mark in marks_of(store.root)]
    assert marks == [("replay", "g", "2"), ("replay", "g", "4")]


@pytest.mark.guarantee("G120")
def test_a_letter_that_cannot_be_stored_again_holds_up_no_other(store: MessageStore, producer: Producer) -> None:
    # Given a letter that failed in a topic of a broker, which no store can have, before three others
    sent = producer.send(Message("a", b"of a broker"))
    backend = open_backend(store)
    copying(backend).append_copy(
        store.messages.read(sent.commit_log_offset),
        MessageQueue("%DLQ%h", 0),
        {"RETRY_TOPIC": "bill.ing"},
        reconsume_times=1,
    )
    for number in range(3):
        sent = producer.send(Message("a", b"%d" % number))
        failure = Failure.raised(ValueError("no number"), 1, "worker-1")
        Retries(backend, "h", RetryPolicy(max_retries=0), "me").send_back(
            store.messages.read(sent.commit_log_offset), failure
        )
    (odd, *others) = select(store, "h", Selection())

    # When all are replayed
    replayed: list[str] = []
    with pytest.raises(LettersRejected) as raised:
        for letter, _ in replay(store, "h", Selection()):
            replayed.append(letter.message.message_id)

    # Then the others are sent, and the one is named, and waits
    assert replayed == [each.message.message_id for each in others]
    assert raised.value.message_ids == (odd.message.message_id,)
    assert [each.message.message_id for each in select(store, "h", Selection())] == [odd.message.message_id]

    # And the shell names it, too
    done = CliRunner().invoke(rmq, ["dlq", "replay", "h", "--again", "--store", str(store.root)])
    assert done.exit_code == 1
    assert odd.message.message_id in done.stderr
    assert "3 dead letters replayed" in done.stderr


@pytest.mark.crash
@pytest.mark.guarantee("G22")
@pytest.mark.parametrize(
    "point", ["APPEND_LOCKED", "RECORD_HALF_COPIED", "RECORDS_ANNOUNCED", "ENTRIES_WRITTEN", "APPEND_FINISHED"]
)
def test_a_replay_that_is_killed_sends_each_once(store: MessageStore, point: str) -> None:
    command = [sys.executable, "-c", KILLED_IN_THE_SECOND, str(store.root), point]
    killed = subprocess.run(command, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    list(replay(store, "g", Selection()))
    assert bodies(store, Selection()) == []
    stored = Counter(message.body for topic in ("a", "b") for message in messages_in(store, topic))
    assert stored == {b"%d" % number: 2 for number in range(6)}
    assert len(list(replay(store, "g", Selection(key="k1", done=True)))) == 1


KILLED_IN_THE_SECOND = """
import sys
from pathlib import Path
from rmqclient.failures.dead_letters import Selection, replay
from rmqclient.store import open_store
from rmqclient.store.crash_points import CrashPoint, arm

with open_store(Path(sys.argv[1]), housekeeping=False) as store:
    arm(CrashPoint[sys.argv[2]], passes=1)
    list(replay(store, "g", Selection()))
"""


def messages_in(store: MessageStore, topic: str) -> Iterator[ReceivedMessage]:
    for queue in store.topics.queues(topic):
        for offset in range(store.topics.max_offset(queue)):
            yield store.messages.at(queue, offset)


def test_a_rate_is_kept(store: MessageStore) -> None:
    begun = time.monotonic()
    assert len(list(replay(store, "g", Selection(), rate=20))) == 6
    assert time.monotonic() - begun >= 5 / 20


def test_a_torn_line_is_passed_over_and_those_behind_it_count(store: MessageStore) -> None:
    list(purge(store, "g", Selection(key="k0")))
    with (store.root / JOURNAL).open("ab") as journal:
        journal.write(b'{"topic": "%DLQ%g", "queue_off')
    list(purge(store, "g", Selection(key="k1")))
    assert "".join(bodies(store, Selection())) == "2345"


def test_a_mark_is_for_one_message_and_not_for_another_with_its_number(store: MessageStore) -> None:
    list(purge(store, "g", Selection()))
    journal = store.root / JOURNAL
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    entries[3]["message_id"] = "7F000001000000000000000000000001"
    journal.write_text("".join(json.dumps(each) + "\n" for each in entries))
    assert "".join(bodies(store, Selection())) == "3"


def test_two_commands_at_once_are_refused(store: MessageStore) -> None:
    descriptor = os.open(store.root / JOURNAL, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(StoreBusy, match="another command replays or purges"):
        list(replay(store, "g", Selection()))
    os.close(descriptor)
    assert len(list(replay(store, "g", Selection()))) == 6


def rmq_dlq(root: Path, *arguments: str) -> Result:
    done = CliRunner().invoke(rmq, ["dlq", *arguments, "--store", str(root)])
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.guarantee("G57")
def test_the_shell_shows_sends_and_puts_aside(store: MessageStore) -> None:
    root = store.root
    assert json.loads(rmq_dlq(root, "ls", "-o", "json").stdout) == [
        {"group": "g", "waiting": 6, "replayed": 0, "purged": 0}
    ]
    rows = json.loads(rmq_dlq(root, "ls", "g", "--error", "timeout", "-o", "json").stdout)
    assert [(row["topic"], row["keys"], row["error"]) for row in rows] == [
        ("b", ["k1"], "TimeoutError: too slow"),
        ("a", ["k4"], "TimeoutError: too slow"),
    ]
    shown = rmq_dlq(root, "show", "g", rows[0]["message_id"]).stdout
    assert "attempt 1" in shown
    assert "TimeoutError: too slow" in shown
    assert len(json.loads(rmq_dlq(root, "replay", "g", "--topic", "a", "--dry-run", "-o", "json").stdout)) == 3
    assert len(json.loads(rmq_dlq(root, "replay", "g", "--topic", "a", "--rate", "100", "-o", "json").stdout)) == 3
    assert rmq_dlq(root, "replay", "g", "--topic", "a").stderr == "0 dead letters replayed\n"
    assert len(json.loads(rmq_dlq(root, "purge", "g", "--limit", "2", "--dry-run", "-o", "json").stdout)) == 2
    assert len(json.loads(rmq_dlq(root, "purge", "g", "--limit", "2", "-o", "json").stdout)) == 2
    assert json.loads(rmq_dlq(root, "ls", "-o", "json").stdout)[0] == {
        "group": "g",
        "waiting": 1,
        "replayed": 3,
        "purged": 2,
    }
    unknown = CliRunner().invoke(rmq, ["dlq", "ls", "nobody", "--store", str(root)])
    assert (unknown.exit_code, "no group is named nobody" in unknown.stderr) == (1, True)


def damage(store: MessageStore, letter: DeadLetter) -> None:
    """Change a byte of the body of a dead letter in the log."""
    path = store.root / "commitlog" / f"{0:020}"
    content = path.read_bytes()
    end = letter.message.commit_log_offset + letter.message.size
    overwrite(path, content.index(letter.message.body, letter.message.commit_log_offset + 80, end), b"?")


def test_dead_letters_that_cannot_be_read_are_named_and_put_aside_with_all_others(store: MessageStore) -> None:
    # Given five that were purged, and one whose record is damaged
    *others, last = select(store, "g", Selection())
    assert len(list(purge(store, "g", Selection(), limit=5))) == len(others)
    damage(store, last)

    # Then a list says so, whatever it was asked for
    for asked in ([], ["--key", "k0", "--again"]):
        assert "1 dead letter cannot be read" in rmq_dlq(store.root, "ls", "g", *asked).stderr
    assert "no dead letters" not in rmq_dlq(store.root, "ls", "g").output

    # And a purge of some leaves it there, one of all does not
    rmq_dlq(store.root, "purge", "g", "--topic", "a", "--yes")
    assert [each.waiting for each in groups(store)] == [1]
    assert "1 dead letter that cannot be read was purged" in rmq_dlq(store.root, "purge", "g", "--yes").stderr
    assert [(each.waiting, each.purged) for each in groups(store)] == [(0, 6)]
    assert rmq_dlq(store.root, "ls", "g").output == "no dead letters\n"


def test_a_dead_letter_that_is_not_there_is_one_line(store: MessageStore) -> None:
    done = CliRunner().invoke(rmq, ["dlq", "show", "g", "nothing", "--store", str(store.root)])
    assert done.exit_code == 1
    assert "group g has no dead letter with the id nothing" in done.output


def test_exported_letters_are_sent_again_as_they_were(store: MessageStore, tmp_path: Path) -> None:
    # Given a dead letter whose body is not text, beside the others
    with Producer(store) as producer:
        odd = Message("a", b"\xff\x00", tags="paid", keys=["k9"], properties={"tenant": "acme"})
        sent = producer.send(odd, "A-17")
    failure = Failure(attempt=1, error="ValueError", text="no text", worker="worker-1")
    retries = Retries(open_backend(store), "g", RetryPolicy(), "worker-1")
    retries.dead_letter(store.messages.at(sent.queue, sent.queue_offset), failure)

    # When all are exported, and the lines are sent to another topic
    file = tmp_path / "letters.jsonl"
    assert rmq_dlq(store.root, "export", "g", str(file)).stderr == "7 dead letters exported\n"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    done = CliRunner().invoke(rmq, ["send", "again", "--jsonl", str(file), "--store", str(store.root)])
    assert done.exit_code == 0, done.output

    # Then each line says why it failed, and each message is what it was, without that
    assert [line["error"] for line in lines].count("TimeoutError: too slow") == 2
    assert lines[0]["failures"][0]["attempt"] == 1
    again = list(messages_in(store, "again"))
    assert {message.body for message in again} == {b"0", b"1", b"2", b"3", b"4", b"5", b"\xff\x00"}
    (found,) = [message for message in again if message.body == b"\xff\x00"]
    assert (found.tags, found.keys, found.sharding_key, found.properties["tenant"]) == ("paid", ("k9",), "A-17", "acme")
    assert not [message for message in again if "RMQ_FAILURES" in message.properties]

    # And to standard output, with a selection; the letters still wait
    some = rmq_dlq(store.root, "export", "g", "--topic", "a", "--limit", "2").stdout.splitlines()
    assert len(some) == 2
    assert json.loads(rmq_dlq(store.root, "ls", "-o", "json").stdout)[0]["waiting"] == 7
