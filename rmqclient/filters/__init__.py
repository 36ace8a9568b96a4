"""Filters: which messages of a topic a group wants. ``tag`` selects by the message's tag."""
