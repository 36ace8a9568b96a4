"""``rmq replica rejoin`` and ``promote`` as the person sees them who is paged at night."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from rmqclient.replication import promotion
from rmqclient.store import open_store
from rmqclient.store.settings.replica_mark import read_mark
from rmqclient.workers.cli import rmq
from rmqclient.workers.commands import replica as replica_commands
from rmqclient.workers.exit_codes import ExitCode
from tests.replication.pairs import catch_up, fill, open_primary
from tests.support.stores import SMALL


def run(*arguments: str, answer: str | None = None) -> Result:
    """Run a command of ``rmq replica``."""
    return CliRunner().invoke(rmq, ["replica", *arguments], input=answer, prog_name="rmq")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """An old primary with 20 messages that nobody else has, and its replica, which was promoted."""
    old, new = tmp_path / "old", tmp_path / "new"
    with open_primary(old) as (store, address):
        fill(store, 10)
        catch_up(new, store, address)
    promotion.promote(new, force=True)
    with open_store(old, SMALL, housekeeping=False) as store:
        fill(store, 20, first=100)
    return old, new


def test_rejoin_shows_what_is_cut_asks_and_says_where_it_is_kept(pair: tuple[Path, Path]) -> None:
    old, new = pair
    with open_primary(new) as (_, address):
        # When the question is answered with no, then nothing has changed
        refused = run("rejoin", address, "--store", str(old), answer="n\n")
        assert refused.exit_code == ExitCode.FAILED
        assert "Put aside 20 messages" in refused.stderr
        assert f"and follow {address}?" in refused.stderr
        assert read_mark(old) is None

        # When it is answered before, then the store follows, and the rest is kept
        done = run("rejoin", address, "--store", str(old), "--yes", "-o", "json")
        assert done.exit_code == ExitCode.OK
        (shown,) = json.loads(done.stdout)
        assert (shown["cut_messages"], shown["primary"]) == (20, address)
        (kept,) = (old / "diverged").iterdir()
        assert f"follows {address} from byte {shown['cut_to']}; {kept} keeps the rest" in done.stderr
    assert kept.stat().st_size == shown["cut_bytes"]
    assert promotion.status(old).role == "follower"


def test_rejoin_says_that_a_primary_does_not_answer_and_not_that_the_store_is_at_fault(pair: tuple[Path, Path]) -> None:
    old, _ = pair
    with socket.socket() as kept:  # a port at which nobody listens
        kept.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{kept.getsockname()[1]}"
        result = run("rejoin", address, "--store", str(old), "--yes")
    assert result.exit_code == ExitCode.FAILED
    assert f"{address} does not answer as a primary: " in result.stderr
    assert "Connection refused. Nothing was changed" in result.stderr
    assert "cannot open" not in result.stderr


def test_rejoin_says_that_somebody_else_answers(pair: tuple[Path, Path]) -> None:
    old, _ = pair
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        other.settimeout(60)

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(8)
                connection.sendall(b"220 smtp.example.org ESMTP\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        result = run("rejoin", address, "--store", str(old), "--yes")
        answering.join()
    assert result.exit_code == ExitCode.FAILED
    assert "does not answer as a primary: the other side does not speak this protocol" in result.stderr


def test_rejoin_says_that_the_store_is_in_use_when_that_is_so(pair: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = pair
    with open_primary(new) as (_, address), open_store(old, SMALL, housekeeping=False):
        result = run("rejoin", address, "--store", str(old), "--yes")
    assert result.exit_code == ExitCode.STORE_CANNOT_BE_OPENED
    assert "end every process that uses it" in result.stderr
    assert run("rejoin", "nowhere", "--store", str(old), "--yes").exit_code == ExitCode.USAGE


def test_promote_says_what_is_missing_before_it_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "copy"
    with open_primary(tmp_path / "primary") as (store, address):
        fill(store, 10)
        catch_up(copy, store, address)

    # Given a person who says no when he is asked
    asked: list[str] = []

    def confirm(question: str, *, yes: bool) -> None:
        if not yes:
            asked.append(question)
            raise click.Abort

    monkeypatch.setattr(replica_commands, "confirm", confirm)
    assert run("promote", "--store", str(copy), "--force").exit_code != ExitCode.OK
    (question,) = asked
    assert question.startswith(f"0 bytes of {address} are missing. It was heard ")
    assert question.endswith(f"Make {copy} a primary, for good?")
    assert promotion.status(copy).role == "follower"

    # Then he is not asked for what would be refused, nor after --yes
    assert run("promote", "--store", str(copy)).exit_code == ExitCode.STORE_CANNOT_BE_OPENED
    assert run("promote", "--store", str(copy), "--force", "--yes").exit_code == ExitCode.OK
    assert len(asked) == 1
    assert promotion.status(copy).role == "primary"
