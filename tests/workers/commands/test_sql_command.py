"""``rmq sql``: each topic is a table, results have the forms of other commands, and errors are words and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="rmq sql needs DuckDB")

from rmqclient import Message, Producer
from rmqclient.archive.archiver import archive
from rmqclient.workers.exit_codes import ExitCode
from tests.support.stores import SMALL
from tests.workers.commands.test_cli import run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sql") / "store"
    with Producer(root, config=SMALL) as producer:
        for number in range(10):
            body = b'{"total": %d}' % number
            producer.send(Message("orders", body, tags="paid" if number % 2 else "new", keys=(f"A-{number}",)))
        producer.send(Message("eu-west%1", b"\xff\x00"))
        producer.send(Message("Select", b"one"))
        producer.send(Message("select", b"two"))
    return root


def query(store: Path, sql: str, *options: str) -> list[dict[str, object]]:
    result = run("sql", sql, "-o", "json", *options, "--store", str(store))
    assert result.exit_code == 0, result.output
    rows: list[dict[str, object]] = json.loads(result.stdout)
    return rows


def test_a_topic_is_a_table(store: Path) -> None:
    totals = "SELECT tags, count(*) AS n, sum((decode(value)->>'$.total')::INT) AS total FROM orders GROUP BY tags"
    assert query(store, f"{totals} ORDER BY tags") == [
        {"tags": "new", "n": 5, "total": 20},
        {"tags": "paid", "n": 5, "total": 25},
    ]


def test_a_name_that_sql_would_not_take_stands_in_quotation_marks_and_bytes_that_are_no_text_are_base64(
    store: Path,
) -> None:
    (row,) = query(store, 'SELECT topic, value FROM "eu-west%1"')
    assert row == {"topic": "eu-west%1", "value_base64": "/wA="}


def test_of_two_topics_that_differ_in_case_the_one_that_is_written_is_read(store: Path) -> None:
    assert query(store, 'SELECT value FROM "Select"') == [{"value": "one"}]
    result = run("sql", 'SELECT * FROM "Select", "select"', "--store", str(store))
    assert result.exit_code == ExitCode.USAGE
    assert "Select and select are one name to SQL" in result.stderr


def test_topics_are_joined(store: Path) -> None:
    (row,) = query(store, 'SELECT a.value AS one, b.value AS other FROM "Select" a CROSS JOIN "eu-west%1" b')
    assert row == {"one": "one", "other_base64": "/wA="}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("TIMESTAMPTZ '2026-01-31 12:00:00+00'", "2026-01-31T12:00:00+00:00"),
        ("DATE '2026-01-31'", "2026-01-31"),
        ("1.50::DECIMAL(9, 2)", 1.5),
        ("12345678901234567890123456789::HUGEINT", 12345678901234567890123456789),
        ("0.1234567890123456789::DECIMAL(30, 19)", "0.1234567890123456789"),
        ("MAP {'a': [1, 2]}", {"a": [1, 2]}),
        ("{'a': 'b'::BLOB}", {"a": "b"}),
        ("INTERVAL 3 DAY", "P0M3DT0S"),
        ("NULL", None),
    ],
)
def test_every_kind_of_value_is_written_as_json_has_it(store: Path, value: str, shown: object) -> None:
    assert query(store, f"SELECT {value} AS v") == [{"v": shown}]


def test_columns_of_one_name_are_all_there(store: Path) -> None:
    assert query(store, "SELECT 1 AS a, 2 AS a, 3 AS a_1") == [{"a": 1, "a_1": 2, "a_1_1": 3}]


def test_each_form_of_output(store: Path) -> None:
    sql, where = "SELECT key, tags FROM orders WHERE key = 'A-7'", ("--store", str(store))
    assert run("sql", sql, "-o", "csv", *where).stdout == "key,tags\nA-7,paid\n"
    assert run("sql", sql, "-o", "jsonl", *where).stdout == '{"key":"A-7","tags":"paid"}\n'
    assert run("sql", sql, *where).stdout.split() == ["key", "tags", "A-7", "paid"]
    assert run("sql", sql, "-o", "json", "--query", "[].key", *where).stdout.split() == ["[", '"A-7"', "]"]


def test_a_query_is_copied_to_a_file(store: Path, tmp_path: Path) -> None:
    copied = tmp_path / "orders.parquet"
    assert run("sql", f"COPY (FROM orders) TO '{copied}'", "--store", str(store)).exit_code == 0
    assert query(store, f"SELECT count(*) AS n, min(key) AS least FROM '{copied}'") == [{"n": 10, "least": "A-0"}]


def test_nothing_found_is_no_error(store: Path) -> None:
    result = run("sql", "SELECT 1 WHERE false", "--store", str(store))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no row\n")


def test_metadata_adds_columns(store: Path) -> None:
    (row,) = query(store, "SELECT * FROM orders WHERE key = 'A-7'", "--metadata")
    properties = row["properties"]
    assert isinstance(properties, dict)
    assert (properties["KEYS"], properties["TAGS"]) == ("A-7", "paid")
    assert {"msg_id", "commit_log_offset", "index"} <= row.keys()


@pytest.mark.parametrize(
    ("sql", "code", "said"),
    [
        ("SELECT * FROM ordres", ExitCode.FAILED, "Table with name ordres does not exist; topics there: "),
        ("SELECT nope FROM orders", ExitCode.USAGE, '"nope" not found'),
        ("SELECT FROM WHERE", ExitCode.USAGE, "Parser Error"),
        (" ", ExitCode.USAGE, "the query is empty"),
        ("SELECT decode(value)::INT FROM orders", ExitCode.FAILED, "Conversion Error"),
    ],
)
def test_what_is_wrong_is_one_line_and_an_exit_code(store: Path, sql: str, code: ExitCode, said: str) -> None:
    result = run("sql", sql, "--store", str(store))
    assert result.exit_code == code
    (line,) = result.stderr.splitlines()
    assert line.startswith("rmq: ")
    assert said in line


def test_a_store_that_is_not_there_and_a_cluster_are_refused(tmp_path: Path) -> None:
    assert run("sql", "SELECT 1", "--store", str(tmp_path / "none")).exit_code == ExitCode.STORE_CANNOT_BE_OPENED
    result = run("sql", "SELECT 1", "--store", "rocketmq://127.0.0.1:1")
    assert result.exit_code == ExitCode.FAILED
    assert "name a directory" in result.stderr
    assert run("sql", "SELECT 1").exit_code == ExitCode.USAGE


@pytest.mark.guarantee("G129")
def test_an_archive_has_what_the_directory_no_longer_has_and_is_read_alone(tmp_path: Path) -> None:
    root, url = tmp_path / "store", f"file://{tmp_path}/archive"
    with Producer(root, config=SMALL) as producer:
        for _ in range(100):
            producer.send(Message("orders", b"x" * 1_000))
    archive(root, url)
    first = min((root / "commitlog").iterdir())
    in_all = query(root, "SELECT count(value) AS n FROM orders")
    first.unlink()
    assert query(root, "SELECT count(value) AS n FROM orders", "--archive", url) == in_all == [{"n": 100}]
    alone = run("sql", "SELECT count(value) AS n FROM orders", "--archive", url, "-o", "json")
    (row,) = json.loads(alone.stdout)
    assert 0 < row["n"] < 100
    assert run("sql", "SELECT 1", "--archive", f"{url}-none").exit_code == ExitCode.STORE_CANNOT_BE_OPENED


@pytest.mark.guarantee("G129")
def test_a_message_that_is_gone_is_an_error_and_not_a_missing_row(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with Producer(root, config=SMALL) as producer:
        for _ in range(100):
            producer.send(Message("orders", b"x" * 1_000))
    sorted((root / "commitlog").iterdir())[2].unlink()
    result = run("sql", "SELECT count(value) FROM orders", "--store", str(root))
    assert result.exit_code == ExitCode.FAILED
    assert "cannot be read" in result.stderr


def test_without_duckdb_one_line_says_what_to_install(store: Path) -> None:
    hidden = "import sys; sys.modules['duckdb'] = None; from rmqclient.workers.entry import main; main()"
    command = [sys.executable, "-c", hidden, "sql", "SELECT 1", "--store", str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.FAILED
    assert done.stderr == "rmq: rmq sql needs DuckDB: pip install 'rmqclient[queries]'\n"
