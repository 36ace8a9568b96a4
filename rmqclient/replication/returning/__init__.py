"""Returning: the return of a former primary.

================  ===============================================================================================
module            purpose
================  ===============================================================================================
``fencing``       the new primary tells the old one, which takes no more messages
``rejoining``     the old one follows the new one, after its extra messages were saved and cut off
``reclaiming``    a primary that lost power takes back bytes from its replica before it continues
================  ===============================================================================================
"""
