"""The modes of delivery: which messages of a queue a handler may get side by side, and how many in one call.

A mode is a :class:`~rmqclient.delivery.delivery.Delivery` and the
:class:`~rmqclient.delivery.process_queue.ProcessQueue` that goes with it.
"""
