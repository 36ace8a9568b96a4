"""What producers and consumers hold of an open store: appenders and grants.

Only :class:`rmqclient.store.MessageStore` imports them, and hands them out.
"""
