"""A store as it stands, read without locks: views, dumps, and the numbered invariants."""
