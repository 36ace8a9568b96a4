"""Desk: what the pages work with: the open store, live samples, templates, and what a person asked for.

``desk`` brings the others together, one for each dashboard. ``live`` has the sampler and the stream of events,
``rendering`` the templates, ``assets`` scripts and styles, ``jobs`` what takes longer than an answer, and ``forms`` the
filters in the URL and the actions that were posted.
"""
