"""Tables: the current value of each key of a topic, in the memory of a process.

``table`` follows a topic by what ``updates`` reads, and ``app_table`` opens a table for an application when it is first
used. Applications use :class:`rmqclient.Table` and :meth:`rmqclient.App.table`.
"""
