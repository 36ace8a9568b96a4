"""Sending: storing messages of clients, alone and in batches, and failed messages for a retry.

==================  ==================================================================
``sending``         requests 310, 10 and 320: checks, storing, the answer
``plain_sends``     the same for plain messages, which are nearly all
``topic_checks``    whether a message may go to a topic and a queue, in a broker's order
``incoming``        a message in a request, before it is stored
``batches``         the messages in the body of a batch
``waits``           delays of messages, and the handle that recalls one
``retries``         messages for retry topics, returned messages, dead letters
``appends``         the only appends of messages from the network
``outcomes``        answers: the offsets of a stored message, or the error
``flushes``         answers that wait for the disk
``hosts``           addresses in records and in message ids
==================  ==================================================================
"""
