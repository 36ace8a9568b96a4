"""The command ``rmq`` and the processes behind it.

``cli`` assembles :mod:`~rmqclient.workers.commands`, a file for each noun, over what they share in
:mod:`~rmqclient.workers.console`. :mod:`~rmqclient.workers.processes` holds the supervisor of ``rmq run`` and what runs
inside a worker. ``loading`` leads from ``module:attribute`` to an App, in the supervisor and in each worker.

This package imports nothing by itself, so that ``rmq --help`` is quick and a worker stays small: only the command's own
process loads click and rich.
"""
