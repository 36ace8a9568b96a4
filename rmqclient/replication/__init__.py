"""Replication: the log of one store on a second host, by RocketMQ's HA protocol, in both roles.

========================  ========================================================================================
module                    what it is
========================  ========================================================================================
``frames``                the bytes on the wire: reports and frames
``handshake``             how two of ours find out that they are, and what they say of their stores
``primary``               listens for replicas, and answers each of them by a sender
``sender``                sends the log to one replica, and hears how far that is
``acks/``                 up to where how many replicas have the log, and what senders are told of it
``follower``              follows a primary, through every loss of the connection
``joining``               where a replica may go on: what a primary has, and whether both logs are the same
``receiving``             one connection: what comes is compared, appended, reported
``following``             makes a directory a replica, opens it, and follows
``returning/``            how a store that was a primary finds its place again
``asking/``               topics, groups, offsets and delay levels, from the primary's broker
``status``                what the follower last saw, in a file that others read
``promotion``             what a replica lacks, and making it a primary
``addresses``             ``HOST:PORT``
========================  ========================================================================================

The store keeps the promise that a replica takes nothing else: :mod:`rmqclient.store.recovery.replica`.
"""
