"""``python -m rmqclient.workers`` is the command ``rmq``."""

from __future__ import annotations

from rmqclient.workers.entry import main

if __name__ == "__main__":
    main()
