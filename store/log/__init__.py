"""The message log: records, the commit log, consume queues, the index, and queries over them.

Formats stand here, each at the head of the file that owns it. Nothing here knows a consumer group.
"""
