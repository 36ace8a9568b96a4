"""Benchmarks: the cost of sending, consuming and starting, beside a peer and the machine's limit in the same run.

``python -m benchmarks`` runs all benchmarks, ``python -m benchmarks append --quick`` one of them in a few seconds, and
``python -m benchmarks render`` writes ``docs/results/benchmarks.md`` from the results of the last runs. No benchmark
passes or fails: each figure is shown beside its target.

``sending``, ``consuming``, ``starting``, ``growing`` and ``spark`` hold the benchmarks. The files beside them hold what
the benchmarks share: how they measure, what they run in child processes, and how they report.
"""
