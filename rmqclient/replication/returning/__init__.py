"""Returning: how a store that was a primary finds its place again.

================  ===============================================================================================
module            what it is
================  ===============================================================================================
``fencing``       the new primary tells the old one, which takes no message from then on
``rejoining``     the old one follows the new one: what only it has is shown, kept aside and cut off
``reclaiming``    a primary that lost power takes back what its replica has, before it goes on
================  ===============================================================================================
"""
