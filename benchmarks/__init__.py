"""Benchmarks: what sending, consuming and starting cost, beside what the machine and a peer can do in the same run.

``python -m benchmarks`` runs all, ``python -m benchmarks append --quick`` one of them in a few seconds, and
``python -m benchmarks render`` writes ``docs/results/benchmarks.md`` from the results of the last runs. No benchmark
passes or fails: a target stands beside what was measured.

Reading order: ``measure``, ``machine``, ``child``, ``report``; ``traffic``, ``peers``; ``append``, ``consume``,
``latency``, ``sync``, ``scale``, ``start``; ``spark`` with ``spark_rows``, ``spark_tuples``, ``spark_kafka``,
``spark_scans``, ``spark_stream``.
"""
