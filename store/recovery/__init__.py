"""From a directory that nobody closed to a store that can be used."""
