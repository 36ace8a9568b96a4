"""Peers: what users would pick instead of us, each by its own client, in turns with us in one run.

``make bench-peers`` installs what can be installed, measures, and writes ``docs/results/peers.md``. What cannot be had
is a line with the reason.

==================  ====================================================================
``peer``            what a peer is: its promise, its server, the sessions of its clients
``queues``          one file for each queue or broker
``frameworks``      one file for each framework of tasks
``workloads``       one file for each thing that is measured
``processes``       servers and clients as processes of their own
``environment``     the virtual environment of the clients, and programs from Debian
``everybody``       the list of all peers
``run``             the harness: who is measured when, and what becomes of failures
``result``          what a run leaves behind, as JSON
``targets``         ratios that we want to reach
``page``, ``plots`` the page and its pictures, made of the JSON
==================  ====================================================================
"""
