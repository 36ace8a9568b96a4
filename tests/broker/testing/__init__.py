"""What people who test get: a server of their own, and the fixture of pytest."""
