"""Producers: what a broker and its producers tell each other beside messages.

==================  ==================================================================
``transactions``    decisions about half messages: requests 37 and 323
``questions``       asking producers about undecided transactions: request 39
``replies``         replies on their way to requesters: requests 324, 325 and 326
``requesters``      the connection that a reply goes out by
``reply_watch``     replies that local processes store for remote requesters
``recalls``         taking back a message that waits for its time: request 370
==================  ==================================================================
"""
