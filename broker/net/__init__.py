"""Net: the connections of a server, on one event loop."""
