"""The compiled part of the store: one module, ``_kernel``, written in the parts that lie in the folders below.

``_kernel.pyx`` has the rules that every part keeps and the order of the parts. ``_kernel.pyi`` documents what Python
sees. Only the store imports the module; other packages use the names that :mod:`rmqclient.store` offers.
"""
