"""Durable steps: what a handler has finished of a message is stored, so that it goes on behind it.

============  ==========================================================================================
``steps``     what a handler calls: :class:`Steps`, which ``message.steps`` returns
``keeper``    makes the steps of one handler's messages, or says why they can have none
``signals``   tells a message what it waits for
``journal``   what is stored of the steps of one group's messages, and the copies that wait
``values``    results as bytes, and back
``record``    one stored step, as a message
``ends``      how a call ends whose message goes on later, or elsewhere
============  ==========================================================================================
"""
