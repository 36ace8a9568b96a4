"""Local backend: a store directory that processes of this host share."""
