"""Spark over clusters: reads, streams, the sink, and a Spark cluster of its own processes."""
