"""From a directory that was not closed to a store that can be used.

:mod:`rmqclient.store.recovery.opening` is the way in. :mod:`rmqclient.store.recovery.recovery` surveys, plans and
applies; the dry run of ``store/repair.py`` calls the same functions up to the plan.
"""
