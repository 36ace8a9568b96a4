"""The server, over real stores and real connections of the loopback address; a folder for each of its rooms."""
