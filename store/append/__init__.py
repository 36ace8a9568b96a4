"""What surrounds the compiled append: its files and pages, the repair of an interrupted one, buffers, staged records.

The append itself is ``store/kernel/append``. ``store/message_store.py`` wires these parts; recovery and the timer call
:func:`rmqclient.store.append.appending.repair`, and the Spark sink uses :mod:`rmqclient.store.append.staged`.
"""
