"""Clients: connected clients, and notifications to them.

==================  ==================================================================================
``awaited``         missing topics, and the connections that asked for them
``clients``         producers and consumers by group and by connection, from their heartbeats
``member``          connections in consumer groups and in producer groups
``heartbeats``      heartbeats, parsed and checked against limits
``notices``         requests to members: 40 and 220
==================  ==================================================================================
"""
