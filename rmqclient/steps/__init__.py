"""Durable steps: stores the finished steps of a handler's message, so that a later call resumes after them.

=================  =====================================================================================
``steps``          the interface of handlers: :class:`Steps`, which ``message.steps`` returns
``steps_factory``  makes the steps of one handler's messages, or refuses them
``journal``        the stored steps of one group's messages, the waiting copies, and signals to them
``values``         encoding of results
``record``         one stored step, as a message
``ends``           ends of a call whose message continues later or elsewhere
=================  =====================================================================================
"""
