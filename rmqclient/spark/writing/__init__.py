"""Writing: from Spark to a store, each row once. Only :mod:`rmqclient.spark.source` makes the writers."""
