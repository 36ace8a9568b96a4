"""Live: what a person sees of handlers while writing them.

==============  ==========================================================================
``calls``       one call of a handler: how it ended, as a line of text
``notebook``    the handlers of an application in a notebook, and a view that follows them
``wipe``        a store emptied for a new start
==============  ==========================================================================

``rmq dev`` shows the same lines in a terminal.
"""
