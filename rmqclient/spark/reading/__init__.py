"""From a store to Spark."""
