"""Backends: where messages are kept, as producers and consumers see it. ``protocols`` says what they may ask."""
