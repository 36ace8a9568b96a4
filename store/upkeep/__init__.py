"""What the housekeeper does from time to time: flushes, retention and compaction.

:class:`rmqclient.store.upkeep.housekeeper.Housekeeper` holds the role and runs the tasks. The tasks may also be called
directly, by any process: each can run twice, or in two processes at once.
"""
