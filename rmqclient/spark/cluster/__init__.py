"""Cluster: reads the queues of a RocketMQ cluster into Arrow. Only :mod:`rmqclient.spark.places` opens it."""
