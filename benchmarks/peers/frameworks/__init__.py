"""Frameworks: one file for each, with how a task is put in and what a worker process does."""
