"""One application on a directory and on clusters of both releases: the same tests, the same lines.

``place.py`` says where an application runs. A test that expects something else of a place says so with
:meth:`Place.differs`, with the reason; the end of a run lists these lines.
"""
