"""Schedules: messages that are sent at planned times, and delayed messages that wait for theirs.

``cron`` has the schedules of an application and their times, ``cron_sender`` sends their messages, ``waiting`` lists
and cancels delayed messages for the command line. Applications use :meth:`rmqclient.App.schedule`.
"""
