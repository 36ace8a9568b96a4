"""Scaling: how a large group on a large cluster settles, by a simulation.

The members are the real thing: the real :class:`rmqclient.consuming.rebalance.Rebalancer` of each, the real allocation,
the real pauses. The brokers, the network and the time are a model:

=============  ======================================================================
file           noun
=============  ======================================================================
``events``     the clock of the simulation, and what happens when
``cluster``    brokers, which have one thread of work each, and their locks
``member``     a member, which asks brokers and moves towards its allocation
``scenarios``  what happens to a group, and how long it takes to settle
``page``       ``docs/results/scaling.md``
=============  ======================================================================

::

    python -m benchmarks.scaling --brokers 100 --members 1000 --queues 10000
"""
