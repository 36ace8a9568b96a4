"""Groups: which remote client is a member of which group, and which member may be fed from which queue.

==================  ==================================================================================
``room``            answers the requests of members: 34, 35, 38, 46, 41, 42
``offsets``         answers the requests about offsets, 14, 15, 43, 45; where a new group begins
``leases``          which member has which queue, and how a queue moves from one to the next
``lease``           one queue in the hands of one remote member, and the members that ask for it in vain
``allocation``      who is to have which queue, as remote and as local members compute it
``fences``          ordered queues that are kept for a client whose server died
``seats``           remote members in the store's table of members, and the thread that shows they live
==================  ==================================================================================
"""
