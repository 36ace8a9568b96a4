"""Members of groups, what they run, and the workers that they live in."""
