"""``rmq dev``: the handlers of an application while somebody writes them.

=============  ===================================================================================
``reloader``   the process that a person started: it watches files, and starts and ends the other
``changes``    which files are watched, and what has changed
``child``      the process of the handlers: imports the application, shows its calls and its errors
``terminal``   what is shown, in colours
=============  ===================================================================================

The handlers run in one process, a fresh interpreter for each version of the code. Nothing of the old code is left in
it, whatever the code did when it was imported.
"""
