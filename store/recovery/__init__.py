"""From a directory that was not closed to a store that can be used.

:mod:`rmqclient.store.recovery.opening` is the way in. :mod:`rmqclient.store.recovery.recovery` surveys, plans and
applies; the dry run of ``store/repair.py`` calls the same functions up to the plan.
:mod:`rmqclient.store.recovery.replica` changes what a store is to another one, and
:mod:`rmqclient.store.recovery.cutting` takes away the end of a log that only this store has.
"""
