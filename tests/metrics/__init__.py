"""Tests of what a store counts, and how it is shown."""
