"""Parts that the commands share: opening a store, options, rows and tables of output, names of variables.

Only commands import this room.
"""
