"""What processes share while they run: the runtime file and the tables in it."""
