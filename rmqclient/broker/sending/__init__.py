"""Sending: what clients store, alone and in batches, what failed and comes back, transactions, replies, recalls.

==================  ==================================================================
``sending``         requests 310, 10 and 320: checks, storing, the answer
``plain_sends``     the same for the plain messages, which are nearly all
``topic_checks``    whether a message may go to a topic and a queue, in a broker's order
``incoming``        a message as a request brings it
``batches``         the messages in the body of a batch
``waits``           how long a message asks to wait, and the handle that recalls it
``retries``         messages for retry topics, those that were sent back, dead letters
``appends``         the only place that stores what came
``outcomes``        answers: where a message stands, or why it is not stored
``flushes``         answers that wait for the disk
``hosts``           addresses in records and in message ids
==================  ==================================================================
"""
