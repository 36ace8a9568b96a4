"""Scan: what a read asks for (columns, options, offsets), and the protocol of the place that it reads."""
