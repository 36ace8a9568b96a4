"""From a queue that is owned to the handler that is called.

:class:`~rmqclient.delivery.delivery.Delivery` runs the threads of one handler. :mod:`rmqclient.delivery.modes` has its
four modes. The other files each hold one part of it: whose turn it is to look for messages, what a queue has in
flight, how a handler is called, and what becomes of a message that failed.
"""
