"""What producers and consumers hold of an open store: appenders and grants.

A :class:`rmqclient.store.MessageStore` has one maker of each.
"""
