"""Life: start and end of a server, beside the store that it opens.

==================  ====================================================================
``parent``          ending with the process that started the server
``ephemeral``       a directory that is removed with its server, killed or not
``failures``        for tests: requests that fail on demand
``clock_setting``   for tests: moves the server's clock forward
==================  ====================================================================
"""
