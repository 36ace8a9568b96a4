"""Threads: what a thread of the library needs, so that neither an application nor a signal ends it unnoticed.

=============  =====================================================================================
guarded        starts threads; what leaves one is told to whoever answers for the process
locks          conditions and generators whose locks no exception from a signal handler leaves held
logs           lines that never raise, whatever the application's handlers and filters do
signals        which signals a thread leaves to others
standing       which processes stand still, and hold a lock all the same
watched_calls  calls of other code, of which one that hangs does not hold the next
=============  =====================================================================================
"""
