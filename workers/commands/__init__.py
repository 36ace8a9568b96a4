"""The commands of ``rmq``, a file for each noun. They import the store inside their functions: help is quick.

Common options are those of :mod:`rmqclient.workers.console.parameters`: ``with_store``, ``with_output``, and
``with_rows`` for a list. The example that the help of each command shows stands in ``cheat``.
"""
