"""From Spark to a store."""
