"""What came out of the demonstration, and whether it is right."""
