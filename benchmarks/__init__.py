"""Benchmarks: the cost of sending, consuming and starting, beside a peer and the machine's limit in the same run.

``python -m benchmarks`` runs all benchmarks, ``python -m benchmarks append --quick`` one of them in a few seconds, and
``python -m benchmarks render`` writes ``docs/results/benchmarks.md`` from the results of the last runs. No benchmark
passes or fails: each figure is shown beside its target.

Reading order: ``measure``, ``machine``, ``child``, ``report``; ``traffic``, ``peers``; then the benchmarks in
``sending``, ``consuming`` and ``starting``; ``spark`` with ``rows``, ``tuples``, ``kafka``, ``scans``, ``stream``.
"""
