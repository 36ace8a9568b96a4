"""Remoting: the protocol between RocketMQ's clients, name servers and brokers, for both of its sides.

Nothing here opens a connection: a frame is bytes, a header is a mapping, a body is an object.

``codes`` has the numbers, ``frame`` the bytes, ``table`` every request with its fields, ``errors`` what goes wrong.
"""
