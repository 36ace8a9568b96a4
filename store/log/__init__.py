"""The message log: records, the commit log, consume queues, the index, and what is looked up in them."""
