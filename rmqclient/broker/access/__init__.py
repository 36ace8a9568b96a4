"""Access: who may do what over the network.

==============  ==========================================================================
``guard``       asks for what a request's route needs, before its handler
``accounts``    the file of access keys, and how a secret is kept in it
``addresses``   patterns of the addresses of clients
``read_only``   a server that changes nothing
==============  ==========================================================================
"""
