"""A second backend, in memory, and the tests of behaviour that run on both backends."""
