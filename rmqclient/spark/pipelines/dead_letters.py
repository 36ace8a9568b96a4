"""Dead letters: counts failures by exception, handler and time, and sends again the messages that a condition selects.

The columns that a condition in SQL may use:

===============  ============  =====================================================================================
column           type          meaning
===============  ============  =====================================================================================
group            string        the group that gave up the message
topic            string        the topic where the message failed first
error            string        class of the last exception; ``death`` if the process died; null without a history
text             string        text of that exception
handler          string        ``shop.py:bill``: file and function of the first frame of the last traceback that is
                               not this library's; null without such a frame, as after a death
attempts         int           delivery attempts
timestamp        timestamp     when the group gave up the message
born_timestamp   timestamp     when the message was sent
key, tags        string
value            binary        body; ``CAST(value AS STRING)``
properties       map
msg_id           string        message id, the same for all copies of a message
offset           long          queue offset in the dead letter topic
===============  ============  =====================================================================================
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

import rmqclient
from rmqclient.failures import dead_letters
from rmqclient.failures.failure import HISTORY
from rmqclient.failures.retry import dead_letter_topic
from rmqclient.names import DEAD_LETTER_PREFIX, check_group
from rmqclient.opening import open_backend
from rmqclient.place import located
from rmqclient.spark.pipelines.dead_letter_chart import Failing, draw
from rmqclient.spark.pipelines.reading import Options, messages

_COLUMNS = (
    *("key", "value", "topic", "offset", "timestamp", "born_timestamp", "tags", "properties"),
    *("reconsume_times", "msg_id"),
)
_FAILURE = "array<struct<at: bigint, attempt: int, error: string, text: string, trace: string, worker: string>>"
_FRAME = r'File "(?:[^"]*/)?([^"/]*)", line \d+, in (\S+)'
_PARTS = "|".join(sorted(path.stem for path in Path(rmqclient.__file__).parent.glob("[a-z]*")))
_OURS = rf'/rmqclient/(?:{_PARTS})(?:/[^"]*|\.py)", line'
"""Frames of this library between a consumer and the handler, such as the one that hands over a body."""


@dataclass(frozen=True)
class Replayed:
    """The result of one run of :func:`replay`."""

    group: str
    selected: int
    """Dead letters that the condition selects, including those that were replayed or purged before."""

    replayed: int
    message_ids: tuple[str, ...]


def letters(
    spark: SparkSession, store: str | os.PathLike[str], groups: Sequence[str] = (), options: Options | None = None
) -> DataFrame:
    """Return the dead letters of some groups, by default of all, with the columns above."""
    topics = [dead_letter_topic(check_group(group)) for group in groups]
    every = {} if groups else {"subscribePattern": f"{DEAD_LETTER_PREFIX}.*"}
    rows = messages(spark, store, topics, _COLUMNS, every | dict(options or {}))
    history = sql.coalesce(sql.from_json(sql.col("properties")[HISTORY], _FAILURE), sql.array().cast(_FAILURE))
    last = sql.try_element_at(history, sql.lit(-1))
    return rows.select(
        sql.substring(sql.col("topic"), len(DEAD_LETTER_PREFIX) + 1, 1_000).alias("group"),
        sql.coalesce(sql.col("properties")["RETRY_TOPIC"], sql.col("topic")).alias("topic"),
        last["error"].alias("error"),
        last["text"].alias("text"),
        _handler(last["trace"]).alias("handler"),
        sql.col("reconsume_times").alias("attempts"),
        *("timestamp", "born_timestamp", "key", "tags", "value", "properties", "msg_id", "offset"),
        sql.col("topic").alias("dead_letter_topic"),
    )


def analyse(
    spark: SparkSession,
    store: str | os.PathLike[str],
    groups: Sequence[str] = (),
    *,
    where: str | None = None,
    window: str = "1 hour",
    chart: str | os.PathLike[str] | None = None,
    options: Options | None = None,
) -> list[Failing]:
    """Return the counts of failures in order of time. With ``chart``, also draw them to this PNG file.

    ``where`` is a condition in SQL over the columns above. Raises NotInstalled for a chart if matplotlib is not
    installed, and UnknownTopic (inside Spark's exception) for a group that never gave up a message.
    """
    rows = letters(spark, store, groups, options)
    found = (
        (rows.where(where) if where else rows)
        .groupBy(sql.window("timestamp", window).alias("window"), "group", "topic", "handler", "error")
        .agg(
            sql.count("*").alias("messages"),
            sql.sum("attempts").alias("attempts"),
            sql.min(sql.unix_millis("timestamp")).alias("first_ms"),
            sql.max(sql.unix_millis("timestamp")).alias("last_ms"),
            sql.coalesce(sql.max_by("text", "offset"), sql.lit("")).alias("example"),
            sql.max_by("msg_id", "offset").alias("example_id"),
        )
        .withColumns({"start_ms": sql.unix_millis("window.start"), "end_ms": sql.unix_millis("window.end")})
        .drop("window")
        .orderBy("start_ms", "group", "topic", "handler", "error")
    )
    failing = [Failing(**row.asDict()) for row in found.collect()]
    if chart is not None:
        draw(failing, Path(chart))
    return failing


def replay(
    spark: SparkSession,
    store: str | os.PathLike[str],
    group: str,
    *,
    where: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    options: Options | None = None,
) -> Replayed:
    """Send the dead letters of ``group`` that a condition selects to the topics where they failed, each once.

    Spark selects the messages and :func:`rmqclient.failures.dead_letters.replay` sends them: each message keeps its id,
    is left out of later replays, and is sent once even if this process is killed and run again. With ``dry_run``,
    nothing is sent.

    Raises StoreBusy while another command replays or purges, LettersRejected when the others were sent, and raises as
    :meth:`rmqclient.sending.producer.Producer.send`.
    """
    rows = letters(spark, store, [group], options)
    chosen = (rows.where(where) if where else rows).select("dead_letter_topic", "offset", "msg_id").collect()
    names = frozenset((row["dead_letter_topic"], row["offset"], row["msg_id"]) for row in chosen)
    selection = dead_letters.Selection(among=names)
    with closing(open_backend(located(os.fspath(store)), create=False)) as opened:
        if dry_run:
            sent = [letter.message.message_id for letter in dead_letters.select(opened, group, selection)]
        else:
            sent = [each.message.message_id for each, _ in dead_letters.replay(opened, group, selection, rate=rate)]
    return Replayed(group, len(names), len(sent), tuple(sent))


def _handler(trace: Column) -> Column:
    frames = sql.regexp_extract_all(trace, sql.lit(_FRAME), sql.lit(0))
    first = sql.get(sql.filter(frames, lambda frame: ~frame.rlike(_OURS)), 0)
    file, function = (sql.regexp_extract(first, _FRAME, number) for number in (1, 2))
    return sql.when(first.isNotNull(), sql.concat_ws(":", file, function))
