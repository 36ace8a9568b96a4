"""Archive: the sealed files of a store, kept in object storage and read as a log.

``archiver`` uploads a store's sealed files, ``view`` reads an archive alone or with its store, ``manifest`` describes
what an archive holds. ``queues``, ``uploads`` and ``storage`` are the steps and the objects behind them. Applications
use ``rmq store archive`` and :mod:`rmqclient.spark`; errors come from :mod:`rmqclient.errors`.
"""
