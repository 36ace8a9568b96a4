"""Pulling: what consumers read of queues, and what tools ask about stored messages.

==================  ==================================================================
``pulling``         requests 11 and 361: checks, answers, and what is held
``rules``           what a pull asks of groups and their members
``pull``            one pull while it is under way
``selection``       tags and SQL92: which messages a pull wants
``queue_reader``    records of a queue, as they stand in the log
``held_pulls``      pulls that wait for a message
``arrivals``        a thread that sleeps until a message comes
==================  ==================================================================
"""
