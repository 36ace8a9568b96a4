"""The environment variables of ``rmq``. No other file of the command names one."""

from __future__ import annotations

PREFIX = "RMQ"
"""Every option is also a variable: ``RMQ_RUN_PROCESSES`` stands for ``rmq run --processes``."""

CONFIG = "RMQ_CONFIG"
"""The file of settings, instead of the one that is found."""

STORE = "RMQ_STORE"
"""The directory of the store, or the URL of a cluster, for every command with ``--store`` and for an App."""
