"""A year of New York's flights through two groups of handlers, one worker killed on the way, every flight counted once.

Reading order: ``dataset``, ``replay``, ``app``, ``results``; ``tally``, ``report``, ``chart``; ``stage``, ``progress``,
``demo``; with Spark ``weather_delays``, ``weather_chart``, ``queries``, ``pipeline``.
"""
