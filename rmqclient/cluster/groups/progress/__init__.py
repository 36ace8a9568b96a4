"""Progress: the offsets of a group.

===============  ====================================================================================
``offsets``      the protocol of both kinds below
``at_brokers``   of a group whose members share the queues: at the brokers
``in_file``      of a broadcast group: in a file of this host, one for each member
``beginning``    where a new group begins
===============  ====================================================================================
"""
