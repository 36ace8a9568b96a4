"""RocketMQ's own integration tests, as they were published, against a server whose address they are given.

``make rocketmq`` fetches ``rocketmq-test:4.9.7`` with its tests. A class of ours takes the place of the one that all
of them extend, ``src/suite/java/org/apache/rocketmq/test/base/BaseConf.java``; nothing else of them is replaced.
"""
