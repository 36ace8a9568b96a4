"""Applications in their frameworks, on real databases and in real servers."""
