"""Schedules: messages that are sent at planned times, and delayed messages that wait for theirs.

``cron`` has the schedules of an application and their times, ``cron_sender`` sends their messages, ``standing`` says
how a schedule stands, and ``waiting`` lists and cancels delayed messages by hand. Applications use
:meth:`rmqclient.App.schedule`.
"""
