"""Orders valued by the last price of their symbol, which each worker process looks up in its own memory.

``market`` makes the prices and the orders, ``app`` values them, and ``python -m examples.prices`` sends.
"""
