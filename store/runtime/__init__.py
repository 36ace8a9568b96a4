"""What processes share while they run: the runtime file, the tables in it, and the bells by which they wake each other.

The state in the runtime file is lost when the machine restarts. Other rooms of the store use the tables and the words;
other packages get members, workers and bells from :class:`rmqclient.store.MessageStore`.
"""
