"""Work: one file for each thing that is measured of a queue, and ``tasks`` for the frameworks.

A file has the functions that run in the children, and ``measure``, which starts them and adds the figures.
"""
