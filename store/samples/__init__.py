"""Samples: what the processes of a store share, read in one look.

``sample`` has the rows, ``sampler`` reads them.
"""
