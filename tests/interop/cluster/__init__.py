"""Real clusters of RocketMQ, and what this library does on them.

=====================  ==========================================================================
``clusters``           name servers and brokers, started, killed and started again
``workers``              the command ``rmq run`` over a place
``questions``          what the harness asks a name server, without the code that is tried here
``conftest``           the fixtures: shared clusters of both releases, and names for one test
``behaviour/``         the same tests on a directory and on clusters
``kills/``             workers and brokers that are killed under load
=====================  ==========================================================================
"""
