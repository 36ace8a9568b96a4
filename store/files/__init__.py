"""What a store lies on: mapped files, queues of files, byte locks, and the file system under them.

A file here knows bytes, names and locks. It knows no message and no shared state.
"""
