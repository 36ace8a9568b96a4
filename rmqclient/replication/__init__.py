"""Replication: the log of one store on a second host, by RocketMQ's HA protocol, in both roles.

========================  ========================================================================================
module                    purpose
========================  ========================================================================================
``frames``                the bytes on the wire: reports and frames
``handshake``             detects peers of this library, and exchanges facts about both stores
``primary``               listens for replicas, and serves each of them by a sender
``sender``                sends the log to one replica, and takes its reports
``acks/``                 the part of the log that enough replicas have
``follower``              follows a primary, and reconnects
``joining``               the start of a connection: checks that both logs agree
``receiving``             one connection: compares, appends and reports
``following``             makes a directory a replica, opens it, and follows
``returning/``            the return of a former primary
``primary_client/``       topics, groups, offsets and delay levels, from the primary's broker
``status``                the follower's last observations, in a file for other processes
``promotion``             makes a replica a primary, and reports what it lacks
========================  ========================================================================================

The store ensures that a replica takes no other messages: :mod:`rmqclient.store.recovery.replica`.
"""
