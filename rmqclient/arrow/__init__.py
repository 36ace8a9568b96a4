"""Arrow: the messages of a store as record batches, without Spark."""
