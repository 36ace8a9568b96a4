"""Kills under load: workers and brokers die by ``kill -9`` while producers send, and rules go over what that left.

==============  ============================================================================================
``load``        what producers send and handlers write down; the application that ``rmq run`` runs
``producing``   one producer process
``campaign``    starts all of it, kills round by round, and waits until everything is handled
``evidence``    the histories of all processes and the final read, as one list of facts
``judging``     one rule for each thing that can go wrong, and what RocketMQ allows
==============  ============================================================================================
"""
