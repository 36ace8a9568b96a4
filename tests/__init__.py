"""Tests read as sentences, run the real thing, and do not sleep to wait."""
