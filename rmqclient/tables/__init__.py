"""Tables: the current value of each key of a topic, in the memory of a process."""
