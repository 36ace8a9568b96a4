"""Life: how a server begins and ends beside the store that it opens.

==============  ====================================================================
``parent``      ending with the process that started the server
==============  ====================================================================
"""
