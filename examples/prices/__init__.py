"""Orders valued by the last price of their symbol, which each worker process looks up in its own memory.

Reading order: ``market``, ``app``; ``python -m examples.prices`` sends.
"""
