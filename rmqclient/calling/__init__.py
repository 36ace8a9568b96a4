"""What surrounds the call of a handler, wherever it is called.

===============  =======================================================================
``current``      the message that the running code handles, for log lines
===============  =======================================================================

A handler's threads, in :mod:`rmqclient.delivery`, use these rooms; none of them knows a thread, a queue or a store.
"""
