"""Cluster: reads the queues of a RocketMQ cluster into Arrow. Only :mod:`rmqclient.spark.reading.places` opens it."""
