"""The kit for tests of applications."""
