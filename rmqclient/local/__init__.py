"""Local backend: a store directory that the processes of this host share. The store's own objects do the work."""
