"""From a queue that is owned to the handler that is called.

:class:`~rmqclient.delivery.delivery.Delivery` runs the threads of one handler. :mod:`rmqclient.delivery.modes` has its
four modes. The other files each hold one part of it.

==================  ================================================================================================
``turns``           whose turn it is to look for messages
``process_queue``   what a queue has in flight
``caller``          how a handler is called; ``calls``: what a thread calls just now
``runner``          what surrounds every call: what comes next, and what follows an outcome
``suspension``      what becomes of a message that failed, in a queue with an order
``acknowledging``   how a message is finished
``suspects``        messages that may have killed a process, which run alone
==================  ================================================================================================
"""
