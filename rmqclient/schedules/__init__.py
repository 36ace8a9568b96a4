"""Messages that a clock sends."""
