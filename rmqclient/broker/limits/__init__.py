"""Limits: limits on clients, and counts of refusals.

==============  ==========================================================
``limits``      the numbers, with their units
``counters``    refusals by kind, counted and logged
==============  ==========================================================
"""
