"""Pulling: what consumers read of queues, at once or when a message comes.

==================  ==================================================================
``pulling``         requests 11 and 361: checks, answers, and what is held
``rules``           what a pull asks about the members of its group
``pull``            one pull while it is under way
``selection``       tags and SQL92: which messages a pull wants
``queue_reader``    records of a queue, as they stand in the log
``held_pulls``      pulls that wait for a message
``arrivals``        a thread that sleeps until a message comes
``far_pages``       records that come from the disk first
``late_heartbeats`` pulls that wait for a heartbeat
``store_host``      the address of the broker in each record
==================  ==================================================================
"""
