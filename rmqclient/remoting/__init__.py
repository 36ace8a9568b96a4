"""Remoting: the protocol between RocketMQ's clients, name servers and brokers, for both sides.

This package does no I/O: a frame is bytes, a header is a mapping, a body is an object.

================  ==================================================================
``frame``         the bytes of requests and answers
``table``         headers, written and read by the declarations of all requests
``page``          the same declarations as a page for people
``declarations``  each request with its fields and those of its answer
``bodies``        classes of bodies
``codes``         the numbers of requests, answers and languages
``errors``        invalid frames, invalid fields, answers that mean failure
``signature``     the access key and the signature of a request
================  ==================================================================
"""
