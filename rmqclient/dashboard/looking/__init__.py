"""Looking: what the pages show of a store, read and counted. Nothing here knows of HTTP, and nothing is changed."""
