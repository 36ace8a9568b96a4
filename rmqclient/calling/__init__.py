"""What surrounds the call of a handler, wherever it is called.

=================  ====================================================================================
``current``        the message that the running code handles, for log lines
``arguments``      what a handler gets: the body, the message, and what it depends on
``dependencies``   functions that make values for one call, and clean up behind it
``hooks``          what an application wants run around its calls and in each of its processes
``retyped``        what a notebook's cell defines again
``lifespan``       runs before the first message of a process, and behind its last one
``event_loop``     where the coroutines of a process run
=================  ====================================================================================

A handler's threads, in :mod:`rmqclient.delivery`, use these; none of them knows a thread, a queue or a store.
"""
