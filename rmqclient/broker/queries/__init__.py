"""Queries: what clients and tools ask about stored messages and about queues.

==================  =========================================================================
``messages``        requests 12 and 33: messages by key, by unique id, by place in the log
``queues``          requests 29 to 32, 308 and 321: begin, end, times, entries of queues
==================  =========================================================================
"""
