"""Topics read as tables: the present value of each key."""
