"""Commands about the shell itself: its settings, its completion, its cheat sheets."""
