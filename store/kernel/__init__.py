"""The compiled part of the store: one module, ``_kernel``, written in the parts that lie in the folders below.

``_kernel.pyx`` has the rules that every part keeps and the order of the parts. ``_kernel.pyi`` documents what Python
sees. Only the store imports the module; other packages use the names that :mod:`rmqclient.store` offers.
"""

from rmqclient.store import layout
from rmqclient.store.kernel import _kernel

if _kernel.FINGERPRINT != layout.LAYOUT_FINGERPRINT:
    raise ImportError(
        "rmqclient.store.kernel._kernel was built for another layout: run `make install` to build it again"
    )
