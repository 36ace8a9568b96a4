"""Reading a store as it stands, without locks and without changing it: dump, verify, views, a broker's settings.

:func:`rmqclient.store.inspect.reading.open_reader` opens the files that the other modules here read.
"""
