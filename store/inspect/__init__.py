"""Looking at a store as it stands, without locks and without a change: dump, verify, views, and a broker's settings.

:func:`rmqclient.store.inspect.reading.open_reader` opens what everything else here reads.
"""
