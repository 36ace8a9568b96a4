"""Everybody: all peers, in the order of the tables. A new one is a file, and a line here."""

from __future__ import annotations

from benchmarks.peers.frameworks.celery import Celery
from benchmarks.peers.frameworks.dramatiq import Dramatiq
from benchmarks.peers.frameworks.framework import Framework
from benchmarks.peers.frameworks.huey import HueyOnRedis, HueyOnSqlite
from benchmarks.peers.frameworks.procrastinate import Procrastinate
from benchmarks.peers.frameworks.rmq import RmqTasks
from benchmarks.peers.frameworks.rq import Rq
from benchmarks.peers.frameworks.taskiq import Taskiq
from benchmarks.peers.peer import Peer
from benchmarks.peers.queues.honker import Honker
from benchmarks.peers.queues.kafka import Kafka
from benchmarks.peers.queues.nats import Nats
from benchmarks.peers.queues.persist_queue import PersistQueue
from benchmarks.peers.queues.pgmq import Pgmq
from benchmarks.peers.queues.postgresql import PostgreSQL
from benchmarks.peers.queues.rabbitmq import RabbitMQ
from benchmarks.peers.queues.redis import Redis
from benchmarks.peers.queues.rmq import Cluster, Local, Serve
from benchmarks.peers.queues.rocketmq import FlushedRocketMQ, RocketMQ
from benchmarks.peers.queues.sqlite import Sqlite
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3

QUEUES: tuple[Peer, ...] = (
    Local(sync=False),
    Local(sync=True),
    Serve(),
    Cluster(BROKER_4_9_7),
    Cluster(BROKER_5_3_3),
    Sqlite("NORMAL"),
    Sqlite("FULL"),
    Honker(),
    PersistQueue(),
    Redis("everysec"),
    Redis("always"),
    Nats(),
    RabbitMQ(),
    PostgreSQL("on"),
    PostgreSQL("off"),
    Pgmq(),
    Kafka(),
    RocketMQ(BROKER_4_9_7),
    RocketMQ(BROKER_5_3_3),
    FlushedRocketMQ(BROKER_4_9_7),
    FlushedRocketMQ(BROKER_5_3_3),
)

FRAMEWORKS: tuple[Framework, ...] = (
    RmqTasks(),
    HueyOnSqlite(),
    HueyOnRedis(),
    Celery(),
    Dramatiq(),
    Rq(),
    Taskiq(),
    Procrastinate(),
)

EVERYBODY: tuple[Peer | Framework, ...] = (*QUEUES, *FRAMEWORKS)
