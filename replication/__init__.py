"""Replication: the log of one store on a second host, by RocketMQ's HA protocol, in both roles.

========================  ========================================================================================
module                    what it is
========================  ========================================================================================
``frames``                the bytes on the wire: reports and frames
``primary``               listens for replicas, and answers each of them by a sender
``sender``                sends the log to one replica, and hears how far that is
``follower``              follows a primary: compares, receives, checks, appends, reports
``joining``               where a replica may go on: what a primary has, and whether both logs are the same
``broker_client``         asks the primary's broker what the log does not say
``settings_of_primary``   topics, groups, offsets and delay levels, from the broker into the replica
``status``                what the follower last saw, in a file that others read
========================  ========================================================================================

The store keeps the promise that a replica takes nothing else: :mod:`rmqclient.store.replica`.
"""
