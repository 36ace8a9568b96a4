"""Clusters that are set up in another way: shared by tenants, with slaves."""
