"""Quick: requests that are answered in the kernel, from bytes to bytes; everything unusual goes the ordinary way.

==============  ======================================================
``sends``       messages of which nothing special is to be thought
==============  ======================================================
"""
