"""Pulling: reading messages of queues, at once or when a message comes.

==========================  ==================================================================
``pulling``                 requests 11 and 361: answers, at once or later
``checks``                  what a pull must satisfy: group, topic, queue, subscription
``rules``                   what a pull needs to know about the members of its group
``pull``                    one pull while it is under way
``selection``               the messages that a pull wants, by tags or SQL92
``queue_reader``            records of a queue, unchanged
``held_pulls``              pulls that wait for a message
``arrivals``                a thread that sleeps until a message comes
``page_prefetch``           reads records into memory before the event loop touches them
``pending_subscriptions``   pulls that wait for a heartbeat
``store_host``              the broker's address in each record
==========================  ==================================================================
"""
