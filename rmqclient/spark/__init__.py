"""Spark over the files of a store: the data source ``rmq``, and pipelines that people run.

::

    from rmqclient.spark import session

    spark = session()
    flights = spark.read.format("rmq").option("subscribe", "flights").load("./store")

Needs ``pip install 'rmqclient[spark]'`` and Java 17 or newer.
"""
