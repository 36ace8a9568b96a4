"""Broker: a store that other languages, other hosts and RocketMQ's own tools can use, by RocketMQ's protocol.

``rmq serve`` runs it. Local producers and workers use the same directory meanwhile.

==================  ==================================================================
``server``          opens the store, listens, ends
``broker``          the rooms below, wired: which of them answers which request
``group_settings``  the administrator's settings of each group
``request``         a request, its connection, and its answers
``routes``          how a room declares a request: what answers it, what a key needs, whether it writes
``settings``        the options of a server
``quick/``          plain sends, answered in the kernel
``sending/``        what clients store
``producers/``      decisions, transaction checks, replies, recalls
``pulling/``        what clients read: pulls, held pulls, filters
``queries/``        single messages by key, id and place; where queues begin and end
``clients/``        connected clients, from their heartbeats, and notifications to them
``groups/``         remote members of the store's groups: their queues, offsets and locks
``access/``         access keys and permissions
``life/``           the start and the end of a server
``limits/``         limits on clients, and counts of refusals
``net/``            connections: frames in, answers out, requests to clients
``administration/`` RocketMQ's tools: topics, groups, progress, statistics, settings
``topics/``         topics as clients see them; requests to a name server
==================  ==================================================================
"""
