"""Cluster backend: a RocketMQ cluster that is named by a URL, ``rocketmq://host:9876``."""
