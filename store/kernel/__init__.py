"""The compiled part of the store: one module, ``_kernel``, written in the parts that lie in the folders below."""
