"""The results of the demonstration, their check, and their chart."""
