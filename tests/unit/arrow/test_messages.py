"""Messages as a dataset: each one once, whatever a query asks for, and by whatever program."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqclient import Compression, Message, Producer
from rmqclient.archive.archiver import archive
from rmqclient.arrow import Messages, messages, topics
from rmqclient.arrow.columns import ALL, METADATA, PROPERTIES, USUAL
from rmqclient.errors import DataLost, FilterError, StoreUnusable
from rmqclient.store import open_store
from rmqclient.store.errors import UnknownTopic
from tests.support.oracle import reference
from tests.support.stores import appender_of
from tests.support.sweeps import share_of
from tests.support.written import SMALL, written_store
from tests.unit.arrow.read_rows import row_of

FIELD = pads.field
EVERY = [*USUAL, *PROPERTIES, *METADATA]
SENT = 60
KEY = ["topic", "partition", "offset", "index"]

conditions = st.recursive(
    st.one_of(
        st.builds(FIELD("offset").__lt__, st.integers(-2, 30)),
        st.builds(FIELD("offset").__ge__, st.integers(-2, 30)),
        st.builds(FIELD("partition").__eq__, st.integers(0, 2)),
        st.builds(FIELD("topic").__eq__, st.sampled_from(["orders", "payments", "other"])),
        st.builds(FIELD("tags").__eq__, st.sampled_from(["a", "b"])),
        st.just(FIELD("tags").is_null()),
    ),
    lambda inner: st.one_of(
        st.builds(lambda one, other: one & other, inner, inner),
        st.builds(lambda one, other: one | other, inner, inner),
        st.builds(lambda one: ~one, inner),
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with two topics of two queues, with compressed batches and messages without key or tag."""
    root = tmp_path_factory.mktemp("dataset") / "store"
    with Producer(root, config=SMALL) as producer:
        for topic in ("orders", "payments"):
            producer.create_topic(topic, 2)
            for number in range(SENT // 3):
                body = b'{"n": %d}' % number
                producer.send(Message(topic, body, tags=(None, "a", "b")[number % 3], keys=[f"k{number}"]))
                batch = [Message(topic, body, tags="a"), Message(topic, body, tags="a", keys=["x"])]
                producer.send_batch(batch, compression=Compression.ZLIB)
    return root


@pytest.fixture(scope="module")
def both(root: Path) -> Messages:
    return messages(root, ["orders", "payments"], columns=ALL)


@pytest.mark.guarantee("G129")
def test_a_dataset_has_each_message_as_the_oracle_reads_it(tmp_path: Path) -> None:
    root = written_store(tmp_path / "store")
    expected = [row_of(record) for _, record in reference.read_commit_log(root)]
    named = sorted({row["topic"] for row in expected if row["topic"] in topics(root)})
    rows = messages(root, named, columns=EVERY).to_table().to_pylist()
    for row in rows:
        row["properties"] = dict(row["properties"])
    place = lambda row: row["commit_log_offset"]  # noqa: E731
    assert sorted(rows, key=place) == sorted((row for row in expected if row["topic"] in named), key=place)


@pytest.mark.guarantee("G129")
@settings(deadline=None, max_examples=share_of(60))
@given(condition=conditions, columns=st.sets(st.sampled_from(sorted(ALL)), min_size=1))
def test_columns_and_conditions_give_what_they_give_of_the_whole_table(
    both: Messages, condition: Any, columns: set[str]
) -> None:
    names = sorted(columns)
    expected = both.to_table().filter(condition).select(names)
    assert both.to_table(columns=names, filter=condition).equals(expected)
    assert both.filter(condition).to_table(columns=names).equals(expected)
    assert both.count_rows(condition) == expected.num_rows


@pytest.mark.guarantee("G129")
def test_each_message_of_a_compressed_batch_counts_whatever_is_read(both: Messages) -> None:
    assert {both.to_table(columns=[name]).num_rows for name in ALL} == {2 * SENT}
    assert both.to_table(columns=[]).num_rows == 2 * SENT
    rows = both.to_table(columns=KEY).to_pylist()
    assert len({tuple(row.values()) for row in rows}) == 2 * SENT


@pytest.mark.guarantee("G129")
def test_a_dataset_stays_as_it_was_made_and_is_read_by_many_threads(tmp_path: Path) -> None:
    with Producer(tmp_path / "s", config=SMALL) as producer:
        producer.send("orders", b"first")
        made = messages(tmp_path / "s", "orders")
        producer.send("orders", b"second")
        with ThreadPoolExecutor(4) as pool:
            read = list(pool.map(lambda _: made.to_table()["value"].to_pylist(), range(8)))
        assert read == [[b"first"]] * 8
        assert messages(tmp_path / "s", "orders").count_rows() == 2


@pytest.mark.guarantee("G129")
def test_messages_that_are_gone_raise_unless_they_may_be_left_out(root: Path, tmp_path: Path) -> None:
    # Given a store that loses a queue's entries after a dataset was made
    shutil.copytree(root, tmp_path / "s")
    made = messages(tmp_path / "s", "orders")
    lenient = messages(tmp_path / "s", "orders", skip_lost=True)
    shutil.rmtree(tmp_path / "s" / "consumequeue" / "orders" / "1")
    with pytest.raises(DataLost, match="orders, queue 1"):
        made.to_table()
    assert set(lenient.to_table()["partition"].to_pylist()) == {0}
    # Then a condition that leaves the queue out does not come near it
    assert made.to_table(filter=FIELD("partition") == 0).equals(lenient.to_table())


@pytest.mark.guarantee("G129")
def test_a_condition_that_wants_one_tag_reads_no_record_of_another(tmp_path: Path) -> None:
    # Given a store whose only record with another tag is damaged
    root = tmp_path / "s"
    with Producer(root, config=SMALL) as producer:
        for tag in ("paid", "new", "paid"):
            producer.send(Message("orders", tag.encode() * 20, tags=tag), sharding_key="one queue")
    (log,) = (root / "commitlog").iterdir()
    content = log.read_bytes()
    log.write_bytes(content.replace(b"new" * 20, b"old" * 20))
    made = messages(root, "orders")
    with pytest.raises(DataLost):
        made.to_table()

    # Then who asks for the others does not come near it
    paid = FIELD("tags") == "paid"
    assert made.to_table(filter=paid)["value"].to_pylist() == [b"paid" * 20] * 2
    assert made.filter(FIELD("offset") >= 0).count_rows(paid) == 2
    with pytest.raises(DataLost):
        made.to_table(filter=paid | (FIELD("tags") == "new"))


@pytest.mark.guarantee("G129")
def test_another_store_at_the_path_raises(tmp_path: Path) -> None:
    with Producer(tmp_path / "s", config=SMALL) as producer:
        producer.send("orders", b"one")
    made = messages(tmp_path / "s", "orders")
    shutil.rmtree(tmp_path / "s")
    with Producer(tmp_path / "s", config=SMALL) as producer:
        producer.send("orders", b"other")
    with pytest.raises(DataLost, match="another store"):
        made.to_table()


def test_times_bound_a_dataset(root: Path, both: Messages) -> None:
    stored = sorted(both.to_table(columns=["timestamp"])["timestamp"].to_pylist())
    middle = stored[len(stored) // 2]
    since = messages(root, ["orders", "payments"], since=middle)
    until = messages(root, ["orders", "payments"], until=middle)
    assert min(since.to_table()["timestamp"].to_pylist()) >= middle
    assert since.count_rows() + until.count_rows() == len(stored)
    assert messages(root, "orders", since=datetime.now(UTC) + timedelta(days=1)).count_rows() == 0
    assert messages(root, "orders", until=datetime(1960, 1, 1, tzinfo=UTC)).count_rows() == 0


def test_dead_letters_are_read_as_any_topic(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", SMALL, housekeeping=False) as store:
        store.topics.create("%DLQ%billing", 1)
        appender_of(store).append(Message("%DLQ%billing", b"given up"))
    assert messages(tmp_path / "s", "%DLQ%billing").to_table()["value"].to_pylist() == [b"given up"]


def test_an_archive_is_read_as_its_store(tmp_path: Path) -> None:
    root = written_store(tmp_path / "store")
    archive(root, f"file://{tmp_path}/archive")
    name = topics(root)[0]
    archived = messages(f"file://{tmp_path}/archive", name, columns=["partition", "offset", "value"]).to_table()
    whole = messages(root, name, columns=["partition", "offset", "value"]).to_table()
    assert archived.num_rows
    assert set(map(str, archived.to_pylist())) <= set(map(str, whole.to_pylist()))


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (UnknownTopic, {"topics": "no-such"}),
        (UnknownTopic, {"topics": "a/b"}),
        (ValueError, {"topics": []}),
        (ValueError, {"columns": ["nonsense"]}),
        (ValueError, {"columns": []}),
        (ValueError, {"since": datetime(2026, 1, 1)}),  # noqa: DTZ001 - it is refused
        (ValueError, {"where": "value = 'x'"}),
        (FilterError, {"where": "offset <"}),
        (StoreUnusable, {"store": "nowhere"}),
    ],
)
def test_what_cannot_be_read_is_refused_when_the_dataset_is_made(
    root: Path, tmp_path: Path, error: type[Exception], arguments: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"store": root, "topics": "orders"} | arguments
    if given["store"] == "nowhere":
        given["store"] = tmp_path / "nowhere"
    with pytest.raises(error):
        messages(**given)
    assert not (tmp_path / "nowhere").exists()


def only(data: Messages, *names: str) -> Messages:
    one_queue = data.filter((FIELD("topic") == "orders") & (FIELD("partition") == 0))
    return one_queue.replace_schema(data.schema.empty_table().select(list(names)).schema)


USES: dict[str, Callable[[Messages], Any]] = {
    "schema": lambda data: data.schema.names == list(ALL),
    "scanner": lambda data: data.scanner().to_table().num_rows == 2 * SENT,
    "to_batches": lambda data: sum(batch.num_rows for batch in data.to_batches()) == 2 * SENT,
    "to_table": lambda data: data.to_table().num_rows == 2 * SENT,
    "take": lambda data: data.take(pa.array([0, 3])).num_rows == 2,
    "head": lambda data: data.head(3).num_rows == 3,
    "count_rows": lambda data: data.count_rows() == 2 * SENT,
    "filter": lambda data: data.filter(FIELD("offset") < 0).count_rows() == 0,
    "sort_by": lambda data: data.sort_by("offset")["offset"].to_pylist()[0] == 0,
    "join": lambda data: only(data, "key").join(only(data, "key", "offset"), "key").num_rows > 0,
    "join_asof": lambda data: (
        only(data, "timestamp").join_asof(only(data, "timestamp", "tags"), "timestamp", [], 0).num_columns == 2
    ),
    "replace_schema": lambda data: data.replace_schema(pa.schema([("topic", pa.string())])).to_table().num_columns == 1,
    "partition_expression": lambda data: data.filter(data.partition_expression).count_rows() == 2 * SENT,
}


@pytest.mark.parametrize("name", [name for name in dir(pads.Dataset) if not name.startswith("_")])
def test_every_use_of_a_dataset_of_arrow_works_or_says_that_it_does_not(both: Messages, name: str) -> None:
    if name == "get_fragments":
        with pytest.raises(NotImplementedError):
            both.get_fragments()
    else:
        assert USES[name](both)


def test_a_dataset_is_pickled_without_its_messages(both: Messages) -> None:
    pickled = pickle.dumps(both)
    assert len(pickled) < 4_000
    assert pickle.loads(pickled).to_table().equals(both.to_table())


def test_the_c_stream_interface_gives_all_messages(both: Messages) -> None:
    assert pa.table(both).equals(both.to_table())


def test_duckdb_gets_what_a_query_asks_for(root: Path, both: Messages) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB comes with make install-all")
    with duckdb.connect() as connection:
        connection.register("rows", both)

        def ask(query: str) -> Any:
            return connection.sql(query).fetchall()

        assert ask("SELECT count(*) FROM rows") == [(2 * SENT,)]
        assert ask("SELECT partition, count(*) FROM rows WHERE topic = 'orders' GROUP BY 1 ORDER BY 1") == [
            (queue, both.count_rows((FIELD("topic") == "orders") & (FIELD("partition") == queue))) for queue in (0, 1)
        ]
        assert ask('SELECT count(*) FROM rows WHERE "offset" BETWEEN 3 AND 7 OR tags IS NULL') == [
            (both.count_rows(((FIELD("offset") >= 3) & (FIELD("offset") <= 7)) | FIELD("tags").is_null()),)
        ]
        same = 'a.topic = b.topic AND a.partition = b.partition AND a."offset" = b."offset" AND a.index = b.index'
        assert ask(f"SELECT count(*) FROM rows a JOIN rows b ON {same}") == [(2 * SENT,)]
        assert ask("SELECT sum((decode(value)->>'$.n')::INT) FROM rows") == [(6 * sum(range(SENT // 3)),)]


def test_polars_and_pandas_get_what_a_query_asks_for(both: Messages) -> None:
    polars = pytest.importorskip("polars", reason="Polars comes with make install-all")
    pytest.importorskip("pandas", reason="pandas comes with make install-all")
    found = polars.scan_pyarrow_dataset(both).filter(polars.col("offset") < 3).select(KEY).collect()
    assert found.height == both.count_rows(FIELD("offset") < 3)
    assert polars.DataFrame(both).height == 2 * SENT
    assert len(both.to_table(columns=["offset", "timestamp"]).to_pandas()) == 2 * SENT
