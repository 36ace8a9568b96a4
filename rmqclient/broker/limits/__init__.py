"""Limits: what a server allows its clients, and what it had to refuse.

==============  ==========================================================
``limits``      the numbers, with their units
``counters``    what was refused, how often, and its line in the log
==============  ==========================================================
"""
