"""Access: permissions over the network.

==============  ==========================================================================
``guard``       checks what a request's route needs, before its handler runs
``accounts``    the file of access keys, and how a secret is kept in it
``addresses``   patterns of the addresses of clients
``read_only``   a server that changes nothing
==============  ==========================================================================
"""
