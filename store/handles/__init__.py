"""What producers and consumers hold of an open store: appenders and grants.

No other room of the store imports them; the message store hands them out.
"""
