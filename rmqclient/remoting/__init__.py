"""Remoting: the protocol between RocketMQ's clients, name servers and brokers, for both of its sides.

Nothing here opens a connection: a frame is bytes, a header is a mapping, a body is an object.

================  ==================================================================
``frame``         the bytes of requests and answers
``table``         headers, written and read by the declarations of all requests
``declarations``  each request with its fields and those of its answer
``bodies``        what bodies hold
``codes``         the numbers of requests, answers and languages
``errors``        bytes that are not a frame, fields that do not fit, answers that say no
``signature``     the access key and the signature of a request
================  ==================================================================
"""
