"""Observe: what the processes of a store share, read in one look from outside, and what it says of each group.

================  ==================================================================================================
``reading``       reads a store in milliseconds: it opens nothing, takes no lock and imports no kernel
``shared_file``   of the runtime file and the lock file: the words in the one, who holds the bytes of the other
``processes``     who has the store open, and whether its housekeeper is at work
``group_queues``  how far each group is in each queue
``waiting``       what waits for a delay level or for its time
``records``       of the log: when messages were stored, which groups the waiting retries are for
``config``        of the files in ``config/``: which queues of a topic are in use, which dead letters were settled
``observation``   what one look finds: an ``Observation``, and the rows in it
``summary``       a group: the only ``lag``, ``owner``, ``members`` and ``state`` that any view shows
``states``        the words for states of queues, groups and workers
``sampler``       one observation after another, also while the store is closed and opened
================  ==================================================================================================

``rmq group ls``, ``rmq top``, ``rmq check``, the metrics and the dashboard format summaries. A test feeds one
observation to all of them.
"""
