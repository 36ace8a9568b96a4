"""Files: reads a store's directory or archive, record by record, into Arrow.

Only :mod:`rmqclient.spark.places` opens it.
"""
