"""Crash images: what a disk can hold after a power cut, made from a recorded run of a real store, recovered and judged.

``timeline`` keeps what every file and directory held, moment by moment, and when that was made durable; ``recorder``
fills it while ``workload`` runs. ``image`` draws what a power cut can leave, ``judge`` recovers it and compares it with
``ledger``, which knows what was sent and promised. ``scenario`` chains lives of one store: each begins with an image of
the one before.
"""
