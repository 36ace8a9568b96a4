"""Net: the connections of a server, on one event loop.

==============  ====================================================================
``listener``    listens on addresses and admits connections
``connection``  frames in, answers out, requests to a client
``opened``      the open connections, and their common limits
``flight``      memory of waiting requests and incomplete frames
``tls``         TLS settings, and a generated certificate
==============  ====================================================================
"""
