"""Net: the connections of a server, on one event loop.

==============  ====================================================================
``listener``    addresses, and which of those who come get a connection
``connection``  frames in, answers out, requests to a client
``opened``      the connections that are open, and what they take together
``flight``      the bytes that waiting requests and half-sent frames take
``tls``         how TLS is spoken, and the certificate of a server that has none
==============  ====================================================================
"""
