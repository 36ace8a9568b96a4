"""Reading a cluster without being a member of a group, with scripted brokers that keep messages."""
