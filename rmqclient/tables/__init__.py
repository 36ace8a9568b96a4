"""Tables: the current value of each key of a topic, in the memory of a process.

``table`` follows a topic, and ``app_table`` opens a table for an application at its first use. Applications use
:class:`rmqclient.Table` and :meth:`rmqclient.App.table`.
"""
