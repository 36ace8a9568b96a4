"""Files: reads a store's directory or archive, record by record, into Arrow.

Only :mod:`rmqclient.spark.reading.places` opens it.
"""
