"""Recorded sessions of real clients, sent again to a server of ours, whose answers are compared with the real broker's.

================  ===========================================================================
``connections``   the connections of a session
``preparation``   what a store had before a session, as the session shows it
``translation``   offsets and times of the recording, as they are now
``comparison``    what is the same in two answers, and what differs
``replay``        a session from its first frame to its last
``reasons``       the differences that are meant, each with a sentence that says why
================  ===========================================================================
"""
