"""Quick: requests that the kernel answers without parsing them in Python.

==============  ======================================================
``sends``       plain sends
==============  ======================================================
"""
