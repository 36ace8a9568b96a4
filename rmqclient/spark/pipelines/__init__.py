"""Pipelines: ready-made Spark jobs over a store. Each is a function that takes a session and plain arguments.

====================================================  ===============================================================
function                                              what it does
====================================================  ===============================================================
:func:`rmqclient.spark.pipelines.archive.archive`     messages as Parquet or Delta Lake by topic and day, exactly once
:func:`~rmqclient.spark.pipelines.aggregate.aggregate`  counts, bytes and latencies by window of time, topic and tag
:func:`~rmqclient.spark.pipelines.dead_letters.analyse`  failures by exception, handler and time, with a chart
:func:`~rmqclient.spark.pipelines.dead_letters.replay`  sends again the dead letters that a condition selects, each once
:func:`~rmqclient.spark.pipelines.compact.compact`    the latest message of each key
:func:`~rmqclient.spark.pipelines.backfill.backfill`  sends a range of messages, transformed, to another topic, once
:func:`~rmqclient.spark.pipelines.audit.audit`        counts, gaps, duplicates and latencies from the log itself
====================================================  ===============================================================

``rmq pipeline NAME`` runs each of them.
"""
