"""Producers: sends, transactions, and requests with replies.

``producer`` and ``transaction_producer`` send through the forms in ``sender``. ``request`` waits for the reply that
``reply`` sends. ``transactions`` lists and decides undecided transactions for the command line. Applications use
:class:`rmqclient.Producer` and :class:`rmqclient.TransactionProducer`.
"""
