"""Producers: transactions, replies and recalls.

==================  ==================================================================
``transactions``    decisions about half messages: requests 37 and 323
``questions``       checks of undecided transactions: request 39
``replies``         replies on their way to requesters: requests 324, 325 and 326
``requesters``      the connection to which a reply is sent
``reply_watch``     replies that local processes store for remote requesters
``recalls``         cancelling a timer message: request 370
==================  ==================================================================
"""
