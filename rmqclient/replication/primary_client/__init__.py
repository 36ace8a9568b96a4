"""Primary client: takes from the primary's broker what the log does not contain."""
