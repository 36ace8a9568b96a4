"""Groups of a cluster: members, queue locks at brokers, and prefetched messages.

=================  ===========================================================================================
``members``        the memberships of one consumer: a client of the cluster for each client id
``membership``     one member: its queues
``member_list``    members of a group, from its brokers
``subscriptions``  subscriptions that heartbeats send
``member_locks``   the locks of its queues: taking over a dead member's, renewing its own
``grant``          one queue of a member
``prefetch``       its messages: pulled and not taken, taken and not finished
``pulling``        long polls that prefetch messages
``locks``          the brokers' locks of queues
``offsets``        offsets of a group: at the brokers, or in a file for a broadcast member
``beginning``      start offsets of a new group
``journal``        a file with the messages that run, for the attempts that kill the process
``timer_thread``   a thread for periodic work: renewals, commits, members
``bells``          wake threads when messages come or the group changes
=================  ===========================================================================================
"""
