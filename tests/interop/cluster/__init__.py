"""Real clusters of RocketMQ, and what this library does on them.

=====================  ==========================================================================
``clusters``           name servers and brokers, started, killed and started again
``questions``          what the harness asks a name server, without the code that is tried here
``conftest``           the fixtures: shared clusters of both releases, and names for one test
=====================  ==========================================================================
"""
