"""Pipelines: what people run over a store with Spark, each a function that takes a session and plain arguments.

====================================================  ===============================================================
function                                              what it does
====================================================  ===============================================================
:func:`rmqclient.spark.pipelines.archive.archive`     messages to Parquet or Delta Lake by topic and day, exactly once
:func:`~rmqclient.spark.pipelines.aggregate.aggregate`  counts, bytes and latencies by window of time, topic and tag
:func:`~rmqclient.spark.pipelines.dead_letters.analyse`  what fails, by exception, handler and time, with a chart
:func:`~rmqclient.spark.pipelines.dead_letters.replay`  dead letters that a condition selects, sent again, each once
:func:`~rmqclient.spark.pipelines.compact.compact`    the latest message of each key
:func:`~rmqclient.spark.pipelines.backfill.backfill`  a range of messages, transformed, into another topic, once
:func:`~rmqclient.spark.pipelines.audit.audit`        counts, gaps, duplicates and latencies from the log itself
====================================================  ===============================================================

``rmq pipeline NAME`` runs each of them.
"""
