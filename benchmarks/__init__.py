"""Benchmarks: what sending, consuming and starting cost, beside what the machine and a peer can do in the same run.

``python -m benchmarks`` runs all, ``python -m benchmarks append --quick`` one of them in a few seconds, and
``python -m benchmarks render`` writes ``docs/results/benchmarks.md`` from the results of the last runs. No benchmark
passes or fails: a target stands beside what was measured.

``sending``, ``consuming``, ``starting`` and ``spark`` hold the benchmarks. The files beside them hold what the
benchmarks share: how they measure, what they run in child processes, and how they report.
"""
