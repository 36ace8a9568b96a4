"""Groups: members of groups among remote clients, and the queues that each may read.

==================  ==================================================================================
``room``            connects remote members to the store's groups
``membership``      answers the requests of members: 34, 35, 38, 46
``locks``           answers the requests for locks, 41 and 42
``offsets``         answers the requests about offsets, 14, 15, 43, 45; commits; start offsets of new groups
``leases``          owners of queues, and how a queue moves from one member to the next
``transfers``       the members that ask for a queue, and which of them is to have it
``lease``           one queue leased to one remote member, and the members that wait for it
``allocation``      the intended owner of each queue, as remote and as local members compute it
``fences``          ordered queues that are reserved for a client whose server died
``seating``         which member has a seat for which of its topics
``seats``           remote members in the store's table of members, and the thread that renews them
==================  ==================================================================================
"""
