"""The tests of one application at every place, on ``rmq serve``: without Java, and so in every run.

They stand in ``tests/interop/cluster/behaviour``, where they also run on a directory and on RocketMQ's brokers.
"""
