"""Spark over the files of a store: the data source ``rmq``, and pipelines that people run.

::

    from rmqclient.spark import session

    spark = session()
    flights = spark.read.format("rmq").option("subscribe", "flights").load("./store")

Needs ``pip install 'rmqclient[spark]'`` and Java 17 or newer. Neither is looked for before a session is asked for, so
this package can be imported without them.
"""

from __future__ import annotations

from rmqclient.spark.session import register, session

__all__ = ["register", "session"]
