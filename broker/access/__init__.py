"""Access: who may do what over the network.

==============  ==========================================================================
``guard``       asks the rooms below before a request gets to its handler
``accounts``    the file of access keys, and how a secret is kept in it
``addresses``   patterns of the addresses of clients
``needs``       the topics and groups that a request is about
``codes``       which requests write, and which of them are an administrator's
``read_only``   a server that changes nothing
==============  ==========================================================================
"""
