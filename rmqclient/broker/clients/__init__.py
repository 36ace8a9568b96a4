"""Clients: who is connected, and what is told to them.

==================  ==================================================================================
``awaited``         topics that are not there, and who has asked for them
``clients``         producers and consumers by group and by connection, as their heartbeats tell
``consumer``        one connection in one consumer group, or in one producer group
``heartbeats``      what a heartbeat says, checked and within limits
``notices``         requests to members: 40 and 220
==================  ==================================================================================
"""
