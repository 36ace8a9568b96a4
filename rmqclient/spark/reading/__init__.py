"""Reading: from a store to Spark, as one batch or as a stream. Only :mod:`rmqclient.spark.source` makes the readers."""
