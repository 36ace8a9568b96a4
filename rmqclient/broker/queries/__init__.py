"""Queries: requests about stored messages and about queues.

==================  =========================================================================
``messages``        requests 12 and 33: messages by key, by unique id, by log offset
``queues``          requests 29 to 32, 308 and 321: begin, end, times, entries of queues
==================  =========================================================================
"""
