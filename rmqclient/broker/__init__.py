"""Broker: a store that other languages, other hosts and RocketMQ's own tools can use, by RocketMQ's protocol.

``rmq serve`` runs it. Local producers and workers use the same directory meanwhile.

==================  ==================================================================
``server``          opens the store, listens, ends
``broker``          the rooms below, wired: which of them answers which request
``group_settings``  what an administrator said about each group
``request``         a request, its connection, and its answers
``routes``          how a room declares a request: what answers it, what a key needs, whether it writes
``settings``        what a server is told when it starts
``quick/``          plain sends, answered in the kernel
``sending/``        what clients store
``producers/``      decisions, questions, replies, recalls: what producers ask beside sends
``pulling/``        what clients read: pulls, held pulls, filters
``queries/``        single messages by key, id and place; where queues begin and end
``clients/``        who is connected, as heartbeats tell, and what is told to them
``groups/``         remote members of the store's groups: their queues, offsets and locks
``access/``         who may do what
``life/``           how a server begins and ends
``limits/``         how much clients may take, and what was refused
``net/``            connections: frames in, answers out, requests to clients
``administration/`` RocketMQ's tools: topics, groups, progress, statistics, settings
``topics/``         topics as clients see them; what a name server says
==================  ==================================================================
"""
