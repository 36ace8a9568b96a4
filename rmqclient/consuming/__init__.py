"""Consumers: which queues of a group a process has, and where a group begins.

:class:`~rmqclient.consuming.push_consumer.PushConsumer` runs the handlers of a process, and its rebalancers hand queues
to :mod:`rmqclient.delivery`. :class:`~rmqclient.consuming.pull_consumer.PullConsumer` reads at offsets of the caller's
choice, without a membership. ``in_process`` and ``workers`` run the handlers of an application, in this process and in
processes of its own; ``copies`` makes the copy of the application that those get.
"""
