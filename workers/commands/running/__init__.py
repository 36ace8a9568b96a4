"""Commands around what runs: workers, their schedules, and the server."""
