"""Clients: connected clients, and notifications to them.

==================  ==================================================================================
``awaited``         missing topics, and the connections that asked for them
``clients``         producers and consumers by group and by connection, from their heartbeats
``consumer``        one connection in one consumer group, or in one producer group
``heartbeats``      heartbeats, parsed and checked against limits
``notices``         requests to members: 40 and 220
==================  ==================================================================================
"""
