"""The command ``rmq`` and the processes behind it.

Reading order::

    exit_codes      what a process says by the way it ends, and those endings in words
    signals         signals as bytes in a pipe that a loop can wait for
    restart_policy  when a worker that ended is started again
    worker_life     the life of one worker as a pure state machine
    worker          what runs inside a worker process
    child           that process as its supervisor sees it
    supervisor      the loop that drives the state machine with facts and carries out what it decides
    loading         from ``module:attribute`` to an App
    status          the banner and the rows that a person reads
    output          table, JSON, JSON lines, ``--query``
    parameters      what may stand after an option
    cli             the commands

Nothing is imported here, so that ``rmq --help`` is quick and a worker stays small: only the command's own process
loads click and rich.
"""
