"""Groups over a cluster: members, the queues that brokers lock for them, and the messages that are pulled ahead.

=================  ===========================================================================================
``members``        the memberships of one consumer: a client of the cluster for each client id
``membership``     one member: the queues that it is granted
``member_list``    who is in a group, as its brokers say
``subscriptions``  what the brokers are told that a group wants
``grant``          one queue: what is taken, what is finished, how far the group is
``pulling``        long polls: messages come before they are asked for
``locks``          the brokers' locks of queues
``offsets``        how far a group is: at the brokers, or in a file for a broadcast member
``beginning``      where a new group begins
``journal``        what each handler thread runs, in a file, in case that kills the process
``keeper``         one thread for what is due: renewals, commits, members
``bells``          threads sleep until messages come or the group changes
=================  ===========================================================================================
"""
