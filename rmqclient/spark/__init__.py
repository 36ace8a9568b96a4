"""Spark over the files of a store: the data source ``rmq`` and ready-made pipelines.

::

    from rmqclient.spark import session

    spark = session()
    flights = spark.read.format("rmq").option("subscribe", "flights").load("./store")

Needs ``pip install 'rmqclient[spark]'`` and Java 17 or newer. This package can be imported without them: only
``session()`` looks for them.
"""

from __future__ import annotations

from rmqclient.spark.session import register, session

__all__ = ["register", "session"]
