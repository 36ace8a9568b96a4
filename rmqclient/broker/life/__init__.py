"""Life: how a server begins and ends beside the store that it opens.

==================  ====================================================================
``parent``          ending with the process that started the server
``ephemeral``       a directory that is removed with its server, killed or not
``failures``        for tests: requests that fail as often as they are told to
``clock_setting``   for tests: a server whose time is moved forward
==================  ====================================================================
"""
