"""Declarations of all requests, in a file for each part of the protocol.

``fields`` has the types and the notation, ``declaration`` a request. :mod:`rmqclient.remoting.table` joins them.
"""
